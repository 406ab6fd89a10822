"""Random agent conversations, what they look like rendered plainly, and writers of every text and token format."""

import base64
import gzip
import json
from dataclasses import dataclass

import polars as pl
from builders import dump, write_jsonl
from hypothesis import strategies as st

ASK = "<|assistant|>\n"


@dataclass
class Conversation:
    """Messages of (role, text); every assistant's message answers a call."""

    name: str
    messages: list[tuple[str, str]]

    def calls(self):
        """(messages before, answer) of every call."""
        return [(self.messages[:k], text) for k, (role, text) in enumerate(self.messages) if role == "assistant"]


def as_dicts(messages):
    return [{"role": role, "content": text} for role, text in messages]


def render(messages):
    """The plain rendering of a prompt, as one byte a token."""
    return list(("".join(f"<|{role}|>\n{text}\n" for role, text in messages) + ASK).encode())


def paths_of(conversations, with_answers):
    """Paths of all calls, conversation by conversation, and the lengths of their prompts."""
    calls = [call for conversation in conversations for call in conversation.calls()]
    prompts = [render(before) for before, _ in calls]
    answers = [list(f"{answer}\n".encode()) for _, answer in calls]
    paths = [p + a for p, a in zip(prompts, answers, strict=True)] if with_answers else prompts
    return paths, [len(prompt) for prompt in prompts]


texts = st.text(st.sampled_from("ab\nä"), max_size=40)


@st.composite
def conversations(draw):
    """Agents with one of two system prompts, each with its own task and some rounds."""
    systems = [draw(texts), "you are an agent that edits files " + draw(texts)]
    made = []
    for number in range(draw(st.integers(1, 3))):
        messages = [("system", draw(st.sampled_from(systems))), ("user", draw(texts))]
        for _ in range(draw(st.integers(1, 3))):
            messages += [("assistant", draw(texts)), (draw(st.sampled_from(["user", "tool"])), draw(texts))]
        made.append(Conversation(f"agent-{number}", messages))
    return made


# --- text formats; each returns the path to read


def write_mini_swe(folder, made, start=1_900_000_000):
    for number, conversation in enumerate(made):
        messages = as_dicts(conversation.messages)
        time = start + number
        for message in messages:
            if message["role"] == "assistant":
                message["extra"] = {"response": {"created": time, "provider": "p", "usage": {"prompt_tokens": 9}}}
                time += 5
        content = {"info": {"model_stats": {}}, "messages": messages, "trajectory_format": "mini-swe-agent-1"}
        (folder / f"{conversation.name}.traj.json").write_bytes(dump(content))
    return folder


def write_swe(folder, made, with_query=False):
    for conversation in made:
        steps = [
            {"response": answer, "thought": "", "action": "", "observation": "", "state": "{}"}
            | ({"query": as_dicts(before)} if with_query else {})
            for before, answer in conversation.calls()
        ]
        history = [message | {"agent": "main"} for message in as_dicts(conversation.messages)]
        content = {"environment": "e", "trajectory": steps, "history": history, "info": {}}
        (folder / f"{conversation.name}.traj").write_bytes(dump(content))
    return folder


def write_swe_with_queries(folder, made):
    return write_swe(folder, made, with_query=True)


def write_tau(folder, made):
    items = [
        {"task_id": number, "reward": 1.0, "info": {}, "traj": as_dicts(conversation.messages), "trial": 0}
        for number, conversation in enumerate(made)
    ]
    path = folder / "results.json"
    path.write_bytes(dump(items))
    return path


def write_chat(folder, made):
    rows = [
        {"model": "m", "messages": as_dicts(before), "session_id": conversation.name, "response": answer}
        for conversation in made
        for before, answer in conversation.calls()
    ]
    return write_jsonl(folder / "chat.jsonl", rows)


def write_openhands(folder, made):
    for number, conversation in enumerate(made):
        place = folder / conversation.name
        place.mkdir()
        for k, (before, answer) in enumerate(conversation.calls()):
            content = {
                "messages": [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in before],
                "response": {"choices": [{"message": {"role": "assistant", "content": answer}}]},
                "kwargs": {"model": "m"},
                "cost": 0.1,
                "timestamp": 1_900_000_000.5 + 100 * number + k,
            }
            (place / f"m-{100 - k}.json").write_bytes(dump(content))  # names run against the times
    return folder


def write_aiperf(folder, made):
    data = [
        {
            "session_id": conversation.name,
            "payloads": [{"messages": as_dicts(before), "model": "m"} for before, _ in conversation.calls()],
        }
        for conversation in made
    ]
    path = folder / "inputs.json"
    path.write_bytes(dump({"data": data}))
    return path


def write_pre_gap(folder, made):
    rows = [
        {"session_id": conversation.name, "model": "m", "input": as_dicts(before), "output_length": 3, "pre_gap": 0.5}
        for conversation in made
        for before, _ in conversation.calls()
    ]
    return write_jsonl(folder / "agents.jsonl", rows)


def write_sagemaker(folder, made):
    rows = []
    for number, (before, answer) in enumerate(call for conversation in made for call in conversation.calls()):
        sent = dump({"messages": as_dicts(before)}).decode()
        got = dump({"choices": [{"message": {"role": "assistant", "content": answer}}]})
        rows.append(
            {
                "captureData": {
                    "endpointInput": {"data": sent, "encoding": "JSON"},
                    "endpointOutput": {"data": base64.b64encode(got).decode(), "encoding": "BASE64"},
                },
                "eventMetadata": {"eventId": f"e{number}", "inferenceTime": f"2030-01-01T00:{number:02d}:00.5Z"},
            }
        )
    return write_jsonl(folder / "capture.jsonl", rows)


def write_baseten_prompts(folder, made):
    rows = [
        {
            "timestamp_start_unix_ms": 1_900_000_000_000 + 1000 * number + k,
            "prompt": bytes(render(before)).decode(),
            "input_tokens": 1,
            "output_tokens": len(answer),
            "provided_session_id": conversation.name,
        }
        for number, conversation in enumerate(made)
        for k, (before, answer) in enumerate(conversation.calls())
    ]
    pl.DataFrame(rows).write_ipc(folder / "prompts.arrow")
    return folder / "prompts.arrow"


TEXT_WRITERS = {  # format: writer, whether paths go on with the answers
    "mini-swe-agent": (write_mini_swe, True),
    "swe-agent": (write_swe, True),
    "swe-agent with queries": (write_swe_with_queries, True),
    "tau-bench": (write_tau, True),
    "openhands": (write_openhands, True),
    "openai-chat": (write_chat, False),
    "aiperf-inputs": (write_aiperf, False),
    "lmcache-agent": (write_pre_gap, False),
    "sagemaker-capture": (write_sagemaker, False),
    "baseten prompts": (write_baseten_prompts, False),
}


def write_lmcache(folder, prompts, times):
    """Prompts that are plain texts: (session, text, answer), in file order."""
    rows: dict[str, list] = {}
    for (session, text, answer), time in zip(prompts, times, strict=True):
        row = {"timestamp": time, "input": text, "output": answer, "session_id": session}
        rows.setdefault(session, []).append(row)
    for session, own in rows.items():
        write_jsonl(folder / f"{session}.jsonl", own)
    return folder


def write_aibrix(path, moments):
    """Moments of (ms, [(prompt, output length)]); the last line has no newline."""
    rows = [
        {
            "timestamp": ms,
            "requests": [{"Prompt Length": 1, "Output Length": n, "prompt": prompt} for prompt, n in requests],
        }
        for ms, requests in moments
    ]
    path.write_bytes(b"\n".join(dump(row) for row in rows))
    return path


# --- token formats


@dataclass
class Task:
    """Calls of (prompt, output) token ids, with a gap before each, in whole nanoseconds."""

    name: str
    calls: list[tuple[list[int], list[int]]]
    gaps_ns: list[int]
    service_ns: list[int]
    tail_ns: int


@st.composite
def token_tasks(draw):
    """Tasks that mostly append to their prompt, and sometimes cut it."""
    tokens = st.lists(st.integers(0, 2), max_size=20)
    system = draw(tokens) + [7] * draw(st.integers(0, 40))
    made = []
    for number in range(draw(st.integers(1, 3))):
        prompt = system + draw(tokens)
        calls = []
        for _ in range(draw(st.integers(1, 4))):
            output = draw(tokens)
            calls.append((prompt, output))
            kept = prompt + output if draw(st.booleans()) else prompt[: draw(st.integers(0, len(prompt)))]
            prompt = kept + draw(tokens)
        times = [draw(st.integers(0, 10**10)) for _ in range(2 * len(calls) + 1)]
        made.append(Task(f"task-{number}", calls, times[: len(calls)], times[len(calls) : -1], times[-1]))
    return made


def write_replay(folder, tasks, compress=True):
    for order, task in enumerate(tasks):
        rows = [{"instance_id": task.name, "order": order, "tail_gap_s": task.tail_ns / 1e9}]
        previous = []
        for seq, ((prompt, output), gap) in enumerate(zip(task.calls, task.gaps_ns, strict=True), 1):
            shared = 0
            while shared < min(len(prompt), len(previous)) and prompt[shared] == previous[shared]:
                shared += 1
            rows.append(
                {
                    "seq": seq,
                    "gap_before_s": gap / 1e9,
                    "prompt_shared": shared,
                    "prompt_suffix": prompt[shared:],
                    "prompt_len": len(prompt),
                    "output": output,
                    "output_len": len(output),
                }
            )
            previous = prompt
        text = b"".join(dump(row) + b"\n" for row in rows)
        name = f"{order:03d}_{task.name}.jsonl"
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text, mtime=0))
        else:
            (folder / name).write_bytes(text)
    (folder / "trace_manifest.json").write_text(json.dumps({"schema": "efficientagent.replay_trace.v1"}))
    return folder


def write_agent_run(folder, tasks, start_ns=1_900_000_000 * 10**9):
    (folder / "tasks").mkdir(parents=True)
    for number, task in enumerate(tasks):
        log = folder / "attempts" / task.name / "attempt_01" / "telemetry" / "llm_requests.jsonl"
        log.parent.mkdir(parents=True)
        assigned = now = start_ns + number * 10**9
        rows = []
        for seq, ((prompt, output), gap, service) in enumerate(
            zip(task.calls, task.gaps_ns, task.service_ns, strict=True), 1
        ):
            begin = now + gap
            now = begin + service
            rows.append(
                {
                    "trial_id": task.name,
                    "request_sequence": seq,
                    "error": None,
                    "token_identity_verified": True,
                    "prompt_token_ids": prompt,
                    "generated_token_ids": [output],
                    "start_wall_ns": begin,
                    "end_wall_ns": now,
                    "client_elapsed_ns": service,
                }
            )
        write_jsonl(log, rows[::-1])  # lines stand in any order
        record = {
            "attempt_index": 1,
            "trial_id": task.name,
            "task_timing": {"assigned_ns": assigned, "finished_ns": now + task.tail_ns},
        }
        (folder / "tasks" / f"{task.name}.json").write_bytes(dump(record))
    return folder


def write_llmservingsim(path, tasks, agentic):
    """Sessions of several requests; or single requests, whose sessions and gaps are lost."""
    rows = []
    for number, task in enumerate(tasks):
        waits = [*task.gaps_ns[1:], task.tail_ns]
        requests = [
            {
                "input_toks": len(prompt),
                "output_toks": len(output),
                "input_tok_ids": prompt,
                "output_tok_ids": output,
                "tool_duration_ns": wait,
            }
            for (prompt, output), wait in zip(task.calls, waits, strict=True)
        ]
        if agentic:
            rows.append({"session_id": task.name, "arrival_time_ns": number * 10**9, "sub_requests": requests})
            continue
        for k, request in enumerate(requests):
            del request["tool_duration_ns"]
            rows.append({"arrival_time_ns": number * 10**9 + k} | request)
    return write_jsonl(path, rows)
