import { ensureNatsServer } from '../setup/ensure-nats-server.ts';
import { verb } from './command.ts';
import { runDemo } from '../demo/demo.ts';
import { file, positive, withDefault } from './words.ts';

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
  run: ({ events: eventsFile, count: madeUpEvents, seed }, { entry, environment, print, stop: signal }) =>
    runDemo({ entry, environment, signal, print, eventsFile, madeUpEvents, seed }),
});
