import { listApps } from '../access/listing.ts';
import { dataPaths } from '../config.ts';
import { readRefusals } from '../refusals/refusal-files.ts';
import { createClock } from '../runtime/clock.ts';
import { resolveConfig, verb } from './command.ts';
import { positive, withDefault } from './words.ts';

const fallbackLimit = 100;
const mostLimit = 1000;

/** `tributary refusals`: what of an app was refused lately, newest first, with the service running or stopped. */
export const refusalsCommand = verb({
  name: 'refusals',
  summary: 'list what of an app was refused lately, and why',
  isList: true,
  words: { APP: positive('the id of an app') },
  options: {
    limit: withDefault(positive(`at most so many, newest first; up to ${mostLimit}`, 'N', mostLimit), fallbackLimit),
  },
  examples: ['refusals 7', 'refusals 7 --limit 10'],
  async run({ APP: idApp, limit: most, data }, { environment, answer, note }) {
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: data });
    const paths = dataPaths(config.dataDir);
    // Whose shell it is, sees what there is: the setting is the service's, which removes what may not be.
    const kept = { folder: paths.refusals, bodies: 'on', ageMs: config.refusalsAgeMs } as const;
    const nowMs = createClock(config.clockOffsetSeconds).nowMs();
    const refusals = await readRefusals(kept, idApp, { nowMs, most });
    for (const refusal of refusals) answer(refusal);
    if (refusals.length > 0) return;
    // One that was removed has those of before.
    if (![...listApps(paths), ...listApps(paths, true)].some((app) => app.idApp === String(idApp)))
      note(`there is no app ${idApp} here: 'tributary app list' names those that there are`);
  },
});
