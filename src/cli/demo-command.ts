import { runDemo } from '../demo/demo.ts';
import { parseId, parseWords, type Command } from './command.ts';

const usage = 'tributary demo [--events FILE.ndjson[.gz]] [--count N] [--seed N]';
const defaultCount = '20000';
const defaultSeed = '1';

/** `tributary demo`: the whole pipeline once, on a temporary data folder; exits 1 when a count differs. */
export const demoCommand: Command = {
  name: 'demo',
  usage,
  summary: 'show the whole pipeline once, on made-up sessions or a file of events',
  async run(args, { environment, entry, print, stop }) {
    const { values } = parseWords(
      args,
      [],
      { events: { type: 'string' }, count: { type: 'string' }, seed: { type: 'string' } },
      usage,
    );
    return runDemo({
      entry,
      environment,
      signal: stop,
      print,
      eventsFile: values.events,
      madeUpEvents: parseId(values.count ?? defaultCount, '--count'),
      seed: parseId(values.seed ?? defaultSeed, '--seed'),
    });
  },
};
