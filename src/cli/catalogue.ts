import { listApps } from '../access/apps.ts';
import { withFormerNames } from '../runtime/former-names.ts';
import { readRefusals } from '../refusals/refusal-files.ts';
import { dataVerb } from './command.ts';
import { positive, withDefault, refuse, text } from './words.ts';
import { readCurrentCatalogue } from '../lake/catalogue/current-catalogue.ts';
import { day, toDay } from './export-request.ts';

const fallbackLimit = 100;
const mostLimit = 1000;

export const refusalsCommand = dataVerb({
  name: 'refusals',
  summary: 'list what of an app was refused lately, and why',
  isList: true,
  words: { APP: positive('the id of an app') },
  options: {
    limit: withDefault(positive(`at most so many, newest first; up to ${mostLimit}`, 'N', mostLimit), fallbackLimit),
  },
  examples: ['refusals 7', 'refusals 7 --limit 10'],
  async run({ APP: idApp, limit: most }, { config, paths, clock, note }) {
    // The service's setting only decides what is kept: its operator sees all of that.
    const kept = { folder: paths.refusals, bodies: 'on', ageMs: config.refusalsAgeMs } as const;
    const nowMs = clock.nowMs();
    const refusals = await readRefusals(kept, idApp, { nowMs, most });
    const apps = [...(await listApps(paths)), ...(await listApps(paths, true))];
    if (refusals.length === 0 && !apps.some((app) => app.idApp === String(idApp)))
      note(`there is no app ${idApp} here: 'tributary app list' names those that there are`);
    return refusals;
  },
});

export const catalogueCommand = dataVerb({
  name: 'catalogue',
  summary: 'show the custom events of an app: volume by day, and the parameters of one with types, values and examples',
  isList: true,
  words: { APP: positive('the id of an app: a line for each of its custom events, then its notices') },
  options: {
    event: text('a custom event: a line for it, then one for each of its parameters, then its notices', 'NAME'),
    from: day('the first UTC day whose events are counted: YYYY-MM-DD, today or yesterday (all)'),
    to: day('the last one (today)'),
  },
  examples: ['catalogue 7', 'catalogue 7 --event purchase'],
  opens: 'lake',
  async run({ APP: idApp, event: name, from, to }, { paths, answer, note }) {
    const nowMs = Date.now();
    if (from === undefined && to !== undefined) refuse('--to is given without --from');
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
    if (!isComplete) note('there are more events than were counted: the catalogue is being made');
    if (sealedUntil !== undefined) note(`parameters are as of ${sealedUntil}: later events are counted, not looked at`);
    if (missingFiles > 0) note(`${missingFiles} sealed files are not in the catalogue yet`);
    if (version === undefined) note('there is no catalogue yet: a running service makes it of sealed files');
  },
});
