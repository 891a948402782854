"""KV state: pools, page table, indexer keys and compressor-state rings, and the host page allocator."""

from dspark_factory.api import BufferPlugin, BufferSpec

PLUGINS = (
    BufferPlugin(name="kv_pools", spec=BufferSpec, provider="dspark_factory.kv.pools:KvPools"),
    BufferPlugin(name="index_keys", spec=BufferSpec, provider="dspark_factory.kv.pools:IndexKeys"),
    BufferPlugin(
        name="compressor_state",
        spec=BufferSpec,
        provider="dspark_factory.kv.compressor_state:CompressorState",
    ),
    BufferPlugin(name="page_table", spec=BufferSpec, provider="dspark_factory.kv.page_table:PageTable"),
)
