import { listApps } from '../access/apps.ts';
import { withFormerNames } from '../runtime/former-names.ts';
import { readRefusals } from '../refusals/refusal-files.ts';
import { dataVerb } from './command.ts';
import { positive, withDefault, refuse, text } from './option-specs.ts';
import { readCurrentCatalogue } from '../lake/catalogue/current-catalogue.ts';
import { day, toDay } from './export-request.ts';

const fallbackLimit = 100;
const mostLimit = 1000;

export const refusalsCommand = dataVerb({
  name: 'refusals',
  summary: 'list recent rejected imports of an app, with reasons',
  isList: true,
  words: { APP: positive('app id') },
  options: {
    limit: withDefault(
      positive(`maximum number of records, newest first; up to ${mostLimit}`, 'N', mostLimit),
      fallbackLimit,
    ),
  },
  examples: ['refusals 7', 'refusals 7 --limit 10'],
  async run({ APP: idApp, limit: most }, { config, paths, clock, note }) {
    // The operator sees everything that the service has kept, regardless of its setting.
    const kept = { folder: paths.refusals, bodies: 'on', ageMs: config.refusalsAgeMs } as const;
    const nowMs = clock.nowMs();
    const refusals = await readRefusals(kept, idApp, { nowMs, most });
    const apps = [...(await listApps(paths)), ...(await listApps(paths, true))];
    if (refusals.length === 0 && !apps.some((app) => app.idApp === String(idApp)))
      note(`app ${idApp} does not exist; 'tributary app list' lists all apps`);
    return refusals;
  },
});

export const catalogueCommand = dataVerb({
  name: 'catalogue',
  summary: 'show the custom events of an app with volume by day, or the parameters of one event',
  isList: true,
  words: { APP: positive('app id') },
  options: {
    event: text('name of a custom event, to show its parameters with types, values and examples', 'NAME'),
    from: day('first UTC day to count: YYYY-MM-DD, today or yesterday (all days)'),
    to: day('last UTC day to count (today)'),
  },
  details: ['Prints one line per custom event or parameter, then the notices.'],
  examples: ['catalogue 7', 'catalogue 7 --event purchase'],
  opens: 'lake',
  async run({ APP: idApp, event: name, from, to }, { paths, answer, note }) {
    const nowMs = Date.now();
    if (from === undefined && to !== undefined) refuse('--to needs --from');
    const dates =
      from === undefined ? undefined : { from: toDay(from, 'UTC', nowMs), to: toDay(to ?? 'today', 'UTC', nowMs) };
    const { customEvents, more, notices, missingFiles, version, isComplete, sealedUntil } = await readCurrentCatalogue(
      paths.lake,
      { idApp, customEventName: name, dates },
    );
    for (const { parameters, ...event } of customEvents) {
      answer(withFormerNames('event', event));
      if (name !== undefined)
        for (const parameter of parameters) answer({ parameter: withFormerNames('parameter', parameter) });
    }
    for (const notice of notices) answer({ notice: withFormerNames('notice', notice) });
    if (more.names > 0) note(`${more.names} more custom events, with ${more.events} events, are not listed`);
    if (!isComplete) note('counts are incomplete: the catalogue is being built');
    if (sealedUntil !== undefined) note(`parameters are as of ${sealedUntil}; later events are only counted`);
    if (missingFiles > 0) note(`${missingFiles} sealed files are not in the catalogue yet`);
    if (version === undefined) note('no catalogue yet: the running service builds it from sealed files');
  },
});
