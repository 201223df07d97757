// A worker of a JetStream queue with @nats-io/jetstream. It prints what it saw as one line of JSON, which the test
// compares with what every client must see. Run where its packages are: .build/npm.
import {
  AckPolicy,
  jetstream,
  JetStreamApiError,
  jetstreamManager,
} from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

const [STREAM, CONSUMER, STORED] = ["JOBS", "workers", 12];
const connection = await connect({ servers: process.env.NATS_URL });
const manager = await jetstreamManager(connection, { timeout: 20_000 });
const js = jetstream(connection, { timeout: 20_000 });
const found = { published: [], fetched: [], deliveries: [], consumed: [], streams: [], consumers: [] };

async function code(asked) {
  try {
    await asked;
  } catch (error) {
    return error instanceof JetStreamApiError ? error.code : error.cause?.code ?? error.message;
  }
  return 0;
}

await manager.streams.add({ name: STREAM, subjects: ["jobs.>"] });
for (let number = 0; number < STORED; number++) {
  const ack = await js.publish(`jobs.${number % 3}`, `job ${number}`, { msgID: `id ${number}` });
  found.published.push(ack.seq);
}
const again = await js.publish("jobs.0", "job 0", { msgID: "id 0" });
found.duplicate = again.duplicate && again.seq === 1;
found.wrong_sequence = await code(js.publish("jobs.0", "", { expect: { lastSequence: 3 } }));
found.got = (await manager.streams.getMessage(STREAM, { seq: 2 })).string();
found.missing = await code(manager.streams.info("NONE"));

await manager.consumers.add(STREAM, {
  durable_name: CONSUMER,
  ack_policy: AckPolicy.Explicit,
  max_deliver: 5,
});
const workers = await js.consumers.get(STREAM, CONSUMER);
async function fetch(count) {
  const messages = [];
  for await (const message of await workers.fetch({ max_messages: count, expires: 20_000 })) messages.push(message);
  if (messages.length !== count) throw new Error(`fetched ${messages.length} of ${count}`);
  return messages;
}
for (const message of await fetch(3)) {
  found.fetched.push(message.string());
  if (!await message.ackAck({ timeout: 20_000 })) throw new Error("not acknowledged");
}
let [returned] = await fetch(1);
returned.working();
returned.nak();
[returned] = await fetch(1);
found.returned = returned.string();
found.deliveries.push(returned.info.deliveryCount);
returned.nak(50);
const [terminated] = await fetch(1);
found.terminated = terminated.string();
terminated.term("no good");

const messages = await workers.consume();
for await (const message of messages) {
  if (message.string() === found.returned) found.deliveries.push(message.info.deliveryCount);
  else found.consumed.push(message.string());
  if (!await message.ackAck({ timeout: 20_000 })) throw new Error("not acknowledged");
  if (found.consumed.length === STORED - 5 && found.deliveries.length === 2) break;
}
await messages.close();

found.empty = 0;
for await (const _ of await workers.fetch({ max_messages: 5, expires: 1_000 })) found.empty++;
const info = await workers.info();
found.pending = info.num_pending;
found.ack_pending = info.num_ack_pending;
found.ack_floor = info.ack_floor.stream_seq;
found.stored = (await manager.streams.info(STREAM)).state.messages;
for await (const name of manager.streams.names()) found.streams.push(name);
for await (const each of manager.consumers.list(STREAM)) found.consumers.push(each.name);
await manager.consumers.delete(STREAM, CONSUMER);
await manager.streams.delete(STREAM);
console.log(JSON.stringify(found));
await connection.close();
