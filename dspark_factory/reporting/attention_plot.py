"""A picture of the attention benchmark. From the record alone; matplotlib is imported when it is drawn."""

from __future__ import annotations

from pathlib import Path

from dspark_factory.results import Record


def draw_attention_bench(record: Record, path: str | Path) -> None:
    """One layer by batch size on the left, the step of all layers on the right, as SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    layer, stacks = record.measurements["one_layer"], record.measurements["stack"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    requests = [int(count) for count in layer["requests"]]
    for name in layer["errors"]:
        times = [contenders[name]["microseconds"] for contenders in layer["requests"].values()]
        left.plot(requests, times, marker="o", label=name)
    left.set(title=f"One sparse layer, {layer['keys']} keys a row", ylabel="microseconds")
    for name, stack in stacks.items():
        for context in sorted({row["context"] for row in stack["rows"]}):
            rows = [row for row in stack["rows"] if row["context"] == context]
            right.plot(
                [row["requests"] for row in rows],
                [row["microseconds"] / 1e3 for row in rows],
                marker="o",
                label=f"{name}, {context // 1024}k tokens",
            )
    layers = next(iter(stacks.values()))["layers"]
    right.set(title=f"Verify step of {layers} layers", ylabel="milliseconds")
    for axes in (left, right):
        axes.set(xlabel="requests", xscale="log", yscale="log", xticks=requests, xticklabels=requests)
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize="small")
    figure.suptitle(f"{record.environment.get('device')}, {record.started_at[:10]}", fontsize="small")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg")
    pyplot.close(figure)
