import { ensureNatsServer } from '../nats-setup/ensure-nats-server.ts';
import { defineCommand } from './command.ts';
import { runDemo } from '../demo/demo.ts';
import { file, positive, withDefault } from './option-specs.ts';

export const setupCommand = defineCommand({
  name: 'setup',
  summary: 'find nats-server, or install it',
  isWithoutData: true,
  examples: ['setup'],
  async run(_given, { environment, print, printMessage, stop }) {
    const provision = await ensureNatsServer(environment, { onFetch: printMessage, signal: stop });
    if (provision.how === 'external') print('nats: the server of TRIBUTARY_NATS_URL');
    else print(`nats-server ${provision.version} (${provision.how}): ${provision.binary}`);
  },
});

export const demoCommand = defineCommand({
  name: 'demo',
  summary: 'run the whole pipeline once, on generated sessions or a file of events',
  isWithoutData: true,
  options: {
    events: file('file of events instead of generated ones', 'FILE.ndjson[.gz]'),
    count: withDefault(positive('number of generated events'), 20_000),
    seed: withDefault(positive('seed of the generated events'), 1),
  },
  examples: ['demo', 'demo --events events.ndjson.gz'],
  exitCodes: { 1: 'a count differs, or the demo failed' },
  run: ({ events: eventsFile, count: madeUpEvents, seed }, { entry, environment, print, stop: signal }) =>
    runDemo({ entry, environment, signal, print, eventsFile, madeUpEvents, seed }),
});
