"""KV state: pools, page table, indexer keys and compressor-state rings, and the host page allocator.

Each descriptor is an entry point of this distribution (``pyproject.toml``).
"""

from dspark_factory.api import BufferPlugin, BufferSpec

KV_POOLS = BufferPlugin(
    name="kv_pools", spec=BufferSpec, provider="dspark_factory.kv.pools:KvPools", stores_kv=True
)
INDEX_KEYS = BufferPlugin(name="index_keys", spec=BufferSpec, provider="dspark_factory.kv.pools:IndexKeys")
COMPRESSOR_STATE = BufferPlugin(
    name="compressor_state",
    spec=BufferSpec,
    provider="dspark_factory.kv.compressor_state:CompressorState",
)
PAGE_TABLE = BufferPlugin(
    name="page_table", spec=BufferSpec, provider="dspark_factory.kv.page_table:PageTable"
)
