import { ensureNatsServer } from '../setup/ensure-nats-server.ts';
import { verb } from './command.ts';
import { runDemo } from '../demo/demo.ts';
import { file, positive, withDefault } from './words.ts';

/**
 * `tributary setup`: sees to it that there is a nats-server, and prints one line that says which. Fails with
 * `broker_missing` when there is none and none can be fetched.
 */
export const setupCommand = verb({
  name: 'setup',
  summary: 'see to it that there is a nats-server',
  isWithoutData: true,
  examples: ['setup'],
  async run(_given, { environment, print, note, stop }) {
    const provision = await ensureNatsServer(environment, { onFetch: note, signal: stop });
    if (provision.how === 'external') print('nats: the server that TRIBUTARY_NATS_URL names');
    else print(`nats-server ${provision.version} (${provision.how}): ${provision.binary}`);
  },
});

/** `tributary demo`: the whole pipeline once, on a temporary data folder; exits 1 when a count differs. */
export const demoCommand = verb({
  name: 'demo',
  summary: 'show the whole pipeline once, on made-up sessions or a file of events',
  isWithoutData: true,
  options: {
    events: file('events of your own instead of made-up ones', 'FILE.ndjson[.gz]'),
    count: withDefault(positive('made-up events'), 20_000),
    seed: withDefault(positive('which made-up events they are'), 1),
  },
  examples: ['demo', 'demo --events events.ndjson.gz'],
  exitCodes: { 1: 'a count differs, or the demonstration failed' },
  run({ events, count, seed }, { entry, environment, print, stop }) {
    return runDemo({ entry, environment, signal: stop, print, eventsFile: events, madeUpEvents: count, seed });
  },
});
