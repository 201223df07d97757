// An orchestrator in TypeScript, with nothing but the plain NATS client: it makes two mailboxes,
// sends jobs, and collects the answers.
import { connect, headers, type NatsConnection } from "@nats-io/transport-node";

const TEXTS: Record<string, string> = {
  haiku: "an old silent pond a frog jumps into the pond splash silence again",
  proverb: "many hands make light work",
  alarm: "fire",
};

type Message = { msg_id: number; payload: string; key?: string };
type Answer = { error: string; mail_address?: string; messages?: Message[] };

/** Sends one command of mq9 and returns its answer. */
async function ask(nc: NatsConnection, command: string, body: unknown): Promise<Answer> {
  const reply = await nc.request(`$mq9.AI.${command}`, JSON.stringify(body), { timeout: 10_000 });
  const answer = reply.json<Answer>();
  if (answer.error) throw new Error(answer.error);
  return answer;
}

/** Sends one message; what the broker is to know of it stands in the headers. */
async function send(nc: NatsConnection, address: string, text: string, known: Record<string, string>) {
  const given = headers();
  for (const [name, value] of Object.entries(known)) given.set(name, value);
  const reply = await nc.request(`$mq9.AI.MSG.SEND.${address}`, text, { headers: given, timeout: 10_000 });
  const { error } = reply.json<Answer>();
  if (error) throw new Error(error);
}

const jobs = process.env.JOBS!;
const nc = await connect({ servers: process.env.MQ9_URL });
await ask(nc, "MAILBOX.CREATE", { name: jobs, ttl: 600, exist_ok: true });
const answers = (await ask(nc, "MAILBOX.CREATE", { ttl: 600 })).mail_address!;

for (const [job, text] of Object.entries(TEXTS)) {
  const priority = job === "alarm" ? "critical" : "normal";
  await send(nc, jobs, text, { job, "reply-to": answers, "mq9-priority": priority });
}
// Less important than all jobs, and so the last thing a worker is given.
await send(nc, jobs, "stop", { "mq9-priority": "notify" });
console.log(`typescript: sent ${Object.keys(TEXTS).length} jobs`);

const counts = new Map<string, string>();
while (counts.size < Object.keys(TEXTS).length) {
  const fetch = { group_name: "orchestrator", deliver: "earliest", config: { max_wait_ms: 5000 } };
  const { messages = [] } = await ask(nc, `MSG.FETCH.${answers}`, fetch);
  for (const message of messages) {
    // A job that was done twice, because a worker died, has the same key.
    counts.set(message.key!, message.payload);
    const done = { group_name: "orchestrator", mail_address: answers, msg_id: message.msg_id };
    await ask(nc, `MSG.ACK.${answers}`, done);
  }
}
for (const [job, count] of counts) console.log(`typescript: ${job} has ${count} words`);
await nc.drain();
