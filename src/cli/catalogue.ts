import { listApps } from '../access/apps.ts';
import { withFormerNames } from '../runtime/former-names.ts';
import { readRefusals } from '../refusals/refusal-files.ts';
import { defineDataCommand } from './command.ts';
import { positive, withDefault, failUsage, text } from './option-specs.ts';
import { readCurrentCatalogue } from '../lake/catalogue/current-catalogue.ts';
import { day, toExportDay } from './export-request.ts';

const fallbackLimit = 100;
const maxLimit = 1000;

export const refusalsCommand = defineDataCommand({
  name: 'refusals',
  summary: 'list recent rejected imports of an app, with reasons',
  isList: true,
  arguments: { APP: positive('app id') },
  options: {
    limit: withDefault(
      positive(`maximum number of records, newest first; up to ${maxLimit}`, 'N', maxLimit),
      fallbackLimit,
    ),
  },
  examples: ['refusals 7', 'refusals 7 --limit 10'],
  async run({ APP: idApp, limit: most }, { config, paths, clock, printMessage }) {
    // The operator sees everything that the service has kept, regardless of its setting.
    const refusalFolder = { folder: paths.refusals, bodies: 'on', ageMs: config.refusalsAgeMs } as const;
    const nowMs = clock.nowMs();
    const refusals = await readRefusals(refusalFolder, idApp, { nowMs, most });
    if (config.storage.state !== undefined)
      printMessage('these are the records of this host; GET /v1/refusals returns those of all hosts');
    const apps = [...(await listApps(paths)), ...(await listApps(paths, true))];
    if (refusals.length === 0 && !apps.some((app) => app.idApp === String(idApp)))
      printMessage(`app ${idApp} does not exist; 'tributary app list' lists all apps`);
    return refusals;
  },
});

export const catalogueCommand = defineDataCommand({
  name: 'catalogue',
  summary: 'show the custom events of an app with volume by day, or the parameters of one event',
  isList: true,
  arguments: { APP: positive('app id') },
  options: {
    event: text('name of a custom event, to show its parameters with types, values and examples', 'NAME'),
    from: day('first UTC day to count: YYYY-MM-DD, today or yesterday (all days)'),
    to: day('last UTC day to count (today)'),
  },
  details: ['Prints one line per custom event or parameter, then the notices.'],
  examples: ['catalogue 7', 'catalogue 7 --event purchase'],
  opens: 'lake',
  async run({ APP: idApp, event: name, from, to }, { paths, printResult, printMessage }) {
    const nowMs = Date.now();
    if (from === undefined && to !== undefined) failUsage('--to needs --from');
    const dates =
      from === undefined
        ? undefined
        : { from: toExportDay(from, 'UTC', nowMs), to: toExportDay(to ?? 'today', 'UTC', nowMs) };
    const { customEvents, more, notices, missingFiles, version, isComplete, sealedUntil } = await readCurrentCatalogue(
      paths.lake,
      { idApp, customEventName: name, dates },
    );
    for (const { parameters, ...event } of customEvents) {
      printResult(withFormerNames('event', event));
      if (name !== undefined)
        for (const parameter of parameters) printResult({ parameter: withFormerNames('parameter', parameter) });
    }
    for (const notice of notices) printResult({ notice: withFormerNames('notice', notice) });
    if (more.names > 0) printMessage(`${more.names} more custom events, with ${more.events} events, are not listed`);
    if (!isComplete) printMessage('counts are incomplete: the catalogue is being built');
    if (sealedUntil !== undefined) printMessage(`parameters are as of ${sealedUntil}; later events are only counted`);
    if (missingFiles > 0) printMessage(`${missingFiles} sealed files are not in the catalogue yet`);
    if (version === undefined) printMessage('no catalogue yet: the running service builds it from sealed files');
  },
});
