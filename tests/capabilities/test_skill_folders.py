"""Skills in folders: what a prompt lists, what is loaded, and every file that must not be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import Toolset
from holdfast.capabilities import skill_folders as skills_module
from holdfast.capabilities.skill_folders import skills
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.errors import InvalidArguments, InvalidInput
from holdfast.core.conversation.steps import ToolExecution
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, call, say
from tests.serving import Serve

NO_PATH = "is no path of a file here"
CLERK = AgentDefinition(name="clerk", system_prompt="You are a clerk.", capabilities=("skills",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of two skills, one with further files."""
    place = tmp_path / "skills"
    written(place, "letters", "How to write letters.", "Begin with the date.")
    written(place, "tax-forms", "How to fill in tax forms.", "Read rates.md first.")
    (place / "letters" / "forms").mkdir()
    (place / "letters" / "forms" / "short.md").write_text("Dear Sir,")
    (place / "letters" / ".hidden").write_text("no")
    (place / "README.md").write_text("no skill")
    return place


def written(folder: Path, name: str, description: str, text: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\n\n{text}\n")


async def called(toolset: Toolset, tool: str, **arguments: str) -> ToolExecution:
    model = ScriptedModel([call(tool, **arguments), say("done")])
    driver = LocalDriver(CLERK, model=model, tools=toolset.tools, capabilities=toolset.capabilities)
    return (await driver.execute("Do it.")).steps[0].tool_executions[0]


async def test_the_prompt_lists_the_skills_and_a_skill_is_loaded_with_its_files(folder: Path) -> None:
    toolset = skills(folder)
    (bundle,) = toolset.capabilities
    assert str(bundle.prompt).endswith(
        "Your skills:\n- letters: How to write letters.\n- tax-forms: How to fill in tax forms."
    )
    text = (await called(toolset, "load_skill", name="letters")).answer.text
    assert text == "Begin with the date.\n\nFiles of this skill, for read_skill_file:\n- forms/short.md"
    assert (await called(toolset, "load_skill", name="tax-forms")).answer.text == "Read rates.md first."
    file = await called(toolset, "read_skill_file", name="letters", path="forms/short.md")
    assert file.answer.text == "Dear Sir,"


async def test_a_skill_that_is_not_there_is_an_error_with_the_nearest(folder: Path) -> None:
    execution = await called(skills(folder, include=["letters"]), "load_skill", name="tax-forms")
    assert execution.error is not None
    assert "'tax-forms'" in execution.error.message
    assert "letters" in execution.error.message
    with pytest.raises(InvalidInput, match=r"the skill 'leters'.*letters"):
        skills(folder, include=["leters"])


@pytest.mark.parametrize(
    ("path", "why"),
    [
        *((path, NO_PATH) for path in ("../tax-forms/SKILL.md", "/etc/passwd", "", "forms//short.md", "\ud800")),
        *((path, NO_PATH) for path in ("./SKILL.md", "forms/..", "a\0b", "forms\\short.md")),
        ("forms", "is a folder"),
        ("missing.md", "cannot be read: No such file"),
        ("link.md", "cannot be read: Too many levels of symbolic links"),
        ("out/secret", "cannot be read: Not a directory"),
        ("pipe", "is no file"),
        ("device", "cannot be read"),
        ("binary", "is not UTF-8 text"),
        ("large", "more than 1,000,000 bytes"),
    ],
)
async def test_a_file_is_refused_that_is_none_of_the_skill(folder: Path, path: str, why: str) -> None:
    letters = folder / "letters"
    (folder.parent / "secret").write_text("secret")
    (letters / "link.md").symlink_to(folder.parent / "secret")
    (letters / "out").symlink_to(folder.parent)
    (letters / "device").symlink_to("/dev/zero")
    os.mkfifo(letters / "pipe")
    (letters / "binary").write_bytes(b"\xff\xfe")
    (letters / "large").write_bytes(b"x" * 1_000_001)
    with pytest.raises(InvalidArguments, match=why):
        skills_module.read_file(letters, path)
    listed = (await called(skills(folder), "load_skill", name="letters")).answer.text
    assert "link.md" not in listed
    assert "secret" not in listed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no front matter", "does not begin with front matter"),
        ("---\nname: bad\n", "does not begin with front matter"),
        ("---\nname: [\n---\n", "is no YAML"),
        ("---\nname: other\ndescription: d\n---\n", "`name` is 'other', the folder is called 'bad'"),
        ("---\nname: bad\n---\n", "`description` must be a text"),
        (f"---\nname: bad\ndescription: {'d' * 2_000}\n---\n", "`description` must be a text of at most 1,024"),
        ("---\nname: bad\ndescription: d\n---\n" + "x" * 64_001, "more than 64,000 bytes"),
    ],
)
def test_a_skill_that_is_not_well_formed_is_refused(folder: Path, text: str, why: str) -> None:
    (folder / "bad").mkdir()
    (folder / "bad" / "SKILL.md").write_text(text)
    with pytest.raises(InvalidInput, match=why):
        skills(folder)


def test_a_folder_without_skills_or_with_too_long_a_list_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="has no skills"):
        skills(tmp_path / "empty")
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        skills(tmp_path / "absent")
    for number in range(20):
        written(folder, f"s{number}", "d" * 1_000, "x")
    with pytest.raises(InvalidInput, match="at most 16,000 are allowed"):
        skills(folder)


@pytest.mark.temporal
async def test_on_temporal_the_model_sees_the_list_and_loads_a_skill(serve: Serve, folder: Path) -> None:
    script = [call("load_skill", name="letters"), say("done")]
    async with serve(script, offer=skills(folder)) as served:
        result = await served.client.run(CLERK, "Write.")
        sent = served.endpoint.requests[0]
    assert "- letters: How to write letters." in str(sent)
    assert result.state.steps[0].tool_executions[0].answer.text.startswith("Begin with the date.")
