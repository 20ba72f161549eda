"""A subscriber as a KV-aware router has it, over a real engine: pyzmq and msgspec from PyPI.

`tally engine --kv-events` replays recorded traces; what arrives, live and by replay, must be the
events that the recording holds, field for field. TALLY_ZMQ_PYTHON names an interpreter with the two
packages; without them the cases are skipped.
"""

import gzip
import json
import os
import subprocess
import sys
import time
import unittest

try:
    import msgspec
    import zmq
except ImportError as error:
    MISSING = str(error)
else:
    MISSING = ""

    class Event(msgspec.Struct, array_like=True, omit_defaults=True, tag=True):
        """What all events share."""

    class BlockStored(Event):
        block_hashes: list[int]
        parent_block_hash: int | None
        token_ids: list[int]
        block_size: int
        lora_id: int | None
        medium: str | None
        lora_name: str | None
        extra_keys: list[list | None] | None = None
        group_idx: int | None = None

    class BlockRemoved(Event):
        block_hashes: list[int]
        medium: str | None
        group_idx: int | None = None

    class AllBlocksCleared(Event):
        pass

    class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
        ts: float
        events: list[BlockStored | BlockRemoved | AllBlocksCleared]
        data_parallel_rank: int | None = None


RUNFILES = os.path.join(os.environ.get("TEST_SRCDIR", "."), "tally")
TALLY = os.path.join(RUNFILES, "engine/cli/tally")
RECORDING = os.path.join(RUNFILES, "golden/vllm-0.20.0/kv_events.jsonl.gz")
PATIENCE = 20_000  # milliseconds


def traces(count):
    """(configuration, commands, event lists) of the first traces of the recording."""
    found = []
    with gzip.open(RECORDING, "rt", encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if "format" in record:
                if len(found) == count:
                    return found
                found.append((record["config"], [], []))
                continue
            found[-1][1].append(record["in"])
            if record["out"].get("events"):
                found[-1][2].append(record["out"]["events"])
    return found


def as_recorded(event):
    """An event from the wire as the trace format writes it, hashes by their last eight bytes."""
    if isinstance(event, AllBlocksCleared):
        return {"cleared": True}
    if isinstance(event, BlockRemoved):
        record = {"removed": event.block_hashes, "medium": event.medium}
    else:
        record = {
            "stored": event.block_hashes,
            "parent": event.parent_block_hash,
            "tokens": event.token_ids,
            "block_size": event.block_size,
            "medium": event.medium,
        }
        if event.lora_name is not None:
            record["lora"] = event.lora_name
        if any(keys for keys in event.extra_keys or []):
            record["extra_keys"] = event.extra_keys
    if event.group_idx:
        record["group"] = event.group_idx
    return record


def shortened(event):
    """A recorded event with hashes by their last eight bytes."""
    event = dict(event)
    for key in ("stored", "removed"):
        if key in event:
            event[key] = [int(value[-16:], 16) for value in event[key]]
    if event.get("parent") is not None:
        event["parent"] = int(event["parent"][-16:], 16)
    return event


@unittest.skipIf(MISSING, f"needs pyzmq and msgspec: {MISSING}")
class SubscriberTest(unittest.TestCase):
    def test_events_of_recorded_traces_arrive_live_and_by_replay(self):
        engine = subprocess.Popen(
            [TALLY, "engine", "--behavior", "vllm_0_20", "--kv-events", "tcp://127.0.0.1:*",
             "--kv-events-replay", "tcp://127.0.0.1:*", "--kv-events-topic", "kv"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        context = zmq.Context()
        try:
            self.follow(engine, context)
        finally:
            engine.kill()
            engine.wait()
            context.destroy(linger=0)
            for pipe in (engine.stdin, engine.stdout, engine.stderr):
                pipe.close()

    def follow(self, engine, context):
        words = engine.stderr.readline().split()
        endpoint, replay_endpoint = words[5].rstrip(","), words[8]
        subscriber = context.socket(zmq.SUB)
        subscriber.setsockopt(zmq.SUBSCRIBE, b"kv")
        subscriber.setsockopt(zmq.RCVTIMEO, PATIENCE)
        subscriber.connect(endpoint)
        time.sleep(1)  # a subscription is not told to the subscriber when it has arrived

        wanted = []
        for config, commands, event_lists in traces(8):
            for command in [{"op": "configure", "config": config}] + commands:
                engine.stdin.write(json.dumps(command) + "\n")
                engine.stdin.flush()
                answer = json.loads(engine.stdout.readline())
                self.assertNotIn("error", answer)
            wanted += [[shortened(event) for event in events] for events in event_lists]
        self.assertGreater(len(wanted), 50)

        decoder = msgspec.msgpack.Decoder(Batch)
        started = time.time()
        payloads = []
        for number, events in enumerate(wanted):
            topic, sequence, payload = subscriber.recv_multipart()
            self.assertEqual(topic, b"kv")
            self.assertEqual(int.from_bytes(sequence, "big"), number)
            batch = decoder.decode(payload)
            self.assertEqual(batch.data_parallel_rank, 0)
            self.assertLess(abs(batch.ts - started), 600)
            self.assertEqual([as_recorded(event) for event in batch.events], events)
            payloads.append(payload)

        client = context.socket(zmq.DEALER)
        client.setsockopt(zmq.RCVTIMEO, PATIENCE)
        client.connect(replay_endpoint)
        first = len(payloads) // 2
        client.send_multipart([b"", first.to_bytes(8, "big")])
        for number in range(first, len(payloads)):
            self.assertEqual(client.recv_multipart(),
                             [b"", number.to_bytes(8, "big"), payloads[number]])
        self.assertEqual(client.recv_multipart(), [b"", b"\xff" * 8, b""])


if __name__ == "__main__":
    sys.path.insert(0, os.path.join(RUNFILES, ".ci"))
    import bazel_unittest

    bazel_unittest.main()
