import { dataPaths } from '../config.ts';
import { readRefusals } from '../refusals/refusal-files.ts';
import { createClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { parseId, parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary refusals APP [--limit N] [--data DIR]';
const fallbackLimit = 100;
const mostLimit = 1000;

/** `tributary refusals`: what of an app was refused lately, newest first, with the service running or stopped. */
export const refusalsCommand: Command = {
  name: 'refusals',
  usage,
  summary: 'list what of an app was refused lately, and why',
  details: [`--limit N   at most so many, newest first; ${fallbackLimit} by default, at most ${mostLimit}`],
  async run(args, { environment, answer }) {
    const { values, positionals } = parseWords(args, ['APP'], { limit: { type: 'string' } } as const, usage);
    const idApp = parseId(positionals[0], 'APP');
    const most = values.limit === undefined ? fallbackLimit : parseId(values.limit, '--limit');
    if (most > mostLimit) throw new AppError('usage', `--limit must be at most ${mostLimit}, not ${most}`);
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    const kept = { folder: dataPaths(config.dataDir).refusals, ageMs: config.refusalsAgeMs };
    const nowMs = createClock(config.clockOffsetSeconds).nowMs();
    for (const refusal of await readRefusals(kept, idApp, { nowMs, most })) answer(refusal);
  },
};
