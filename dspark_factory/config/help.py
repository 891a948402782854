"""What ``dspark --help`` prints. Hydra's own help composes first and then takes over a second to list its groups."""

from __future__ import annotations

from dspark_factory.config.groups import Groups
from dspark_factory.config.load import hydra_session

HELP = """\
dspark: DeepSeek-V4 target verification under speculative decoding

Decode, plan, build or benchmark, all from one composed configuration:

  dspark                                               decode the sample prompts, speculatively and checked
  dspark workload.prompt="def main():" workload.max_new_tokens=200
  dspark speculative.num_draft_tokens=4 speculative.verify_layout=ragged
  dspark task=plan model=v4_flash speculative=dspark   every buffer and its bytes; no torch, no memory
  dspark task=build output=json                        build, warm up, capture, replay once
  dspark task=bench task.repeats=5                     beside the transformers library
  dspark -m +sweep=draft_tokens                        how many draft tokens pay at which batch size
  dspark -m hydra/launcher=process task=measure speculative.num_draft_tokens=2,4,8

Choose a file of a group with group=name (buffers takes a list: buffers=[default,name]), set an option with
group.option=value, add a preset with +sweep=name. num_draft_tokens counts the anchor too, so it is at least 2.

Groups:

{groups}

Options and values of what you compose:   dspark --cfg job          of one group:  dspark --cfg job -p pipeline
What every option means:                  docs/configuration.md
Sweeps, step by step:                     docs/how-to-sweep.md          their reports:  dspark-report --help
Plugins:                                  dspark-plugins --help
Flags of Hydra, on which this is built:   dspark --hydra-help
Tab completion:                           eval "$(dspark -sc install=bash)"
"""


def help_text() -> str:
    """Examples, every group with its options (plugins' own included), and where to read on.

    Schemas must be registered.
    """
    with hydra_session():
        groups = Groups()
        names = [name for name in groups.names() if groups.options(name)]
        width = max(map(len, names))
        lines = [f"  {name:{width}}  {groups.options_text(name)}" for name in names]
    return HELP.format(groups="\n".join(lines))
