"""Lines that the attention section of the benchmarks page has, from its record."""

from __future__ import annotations

from collections.abc import Iterator

from dspark_factory.results.record import Record


def layer_lines(record: Record) -> Iterator[str]:
    """One line per batch size: microseconds of each backend, ratios, speed."""
    for requests, found in record.measurements["one_layer"]["requests"].items():
        own, peer, reference = found["flashinfer"], found["flash_mla"], found["reference"]
        yield (
            f"| {requests} | {own['microseconds']:.1f} | {peer['microseconds']:.1f} | "
            f"{reference['microseconds']:.0f} | {peer['ratio']:.2f} | {own['tflops']:.0f} | "
            f"{own['matrix_share']:.0%} |"
        )


def stack_lines(record: Record) -> Iterator[str]:
    """One line per batch size and context."""
    stacks = record.measurements["stack"]
    for own, peer in zip(stacks["flashinfer"]["rows"], stacks["flash_mla"]["rows"], strict=True):
        shares = own["kernel_shares"]
        host = own["host_launch_microseconds"] + own["host_read_microseconds"]
        yield (
            f"| {own['requests']} | {own['context']:,} | {own['microseconds'] / 1e3:.2f} | "
            f"{own['eager_microseconds'] / 1e3:.1f} | {own['eager_ratio']:.1f} | "
            f"{peer['microseconds'] / 1e3:.2f} | {shares['attention']:.0%} | {shares['index_scores']:.0%} | "
            f"{host:.0f} |"
        )


def figures(record: Record) -> dict[str, str]:
    """Single numbers that the text quotes."""
    found = record.measurements
    own, peer = found["stack"]["flashinfer"], found["stack"]["flash_mla"]
    stand_ins = [row["stand_in_share"] for row in own["rows"]]
    return {
        "stand_ins": f"{min(stand_ins):.0%} to {max(stand_ins):.0%}",
        "kernels": f"{max(row['kernels'] for row in own['rows']) // 3}",
        "copy": f"{found['ceilings']['copy_nbytes_per_second'] / 1e12:.2f} TB/s",
        "matrix": f"{found['ceilings']['matrix_flops'] / 1e12:.0f} TFLOP/s",
        "errors": ", ".join(f"{name} {error:.4f}" for name, error in found["one_layer"]["errors"].items()),
        "startup": f"{sum(own['startup_seconds'].values()):.1f} s",
        "first": f"{sum(own['first_startup_seconds'].values()):.0f} s",
        "graphs": f"{own['graphs']} graphs",
        "buffers": f"{sum(own['nbytes'].values()) / 2**30:.1f} GiB",
        "peer_buffers": f"{sum(peer['nbytes'].values()) / 2**30:.1f} GiB",
        "graph_memory": f"{own['graph_nbytes'] / 2**20:.0f} MiB",
    }
