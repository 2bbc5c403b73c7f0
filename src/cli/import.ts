import { formatOf } from '../client/event-source.ts';
import { createHttpClient } from '../client/http-client.ts';
import { batchMethods, createImportArea, waitForLake } from '../client/import-area.ts';
import { importFile } from '../client/import-file.ts';
import { importInput, type ImportHooks, type ImportPosition, type ImportOutcome } from '../client/run-import.ts';
import type { ImportOptions } from '../client/import-state.ts';
import { importKinds, getMethod } from '../datasets/dataset.ts';
import { retry } from '../runtime/async/retry.ts';
import { isAppError } from '../runtime/errors.ts';
import { callerOptions, createWaitReporter, resolveImport } from './service-client.ts';
import { defineCommand, type CommandContext } from './command.ts';
import { formatCount, formatDuration } from './human-output.ts';
import { file, flag, many, oneOf, parsed, positive, failUsage, withDefault } from './option-specs.ts';

const refusedExit = 2;
const interruptedExit = 130;
/** Timeout for a service that is starting, ms. */
const firstAnswerMs = 30_000;
const firstAnswerEveryMs = 500;
const showEveryMs = 200;

/** Returns a new file for the rejected events of standard input, which exist nowhere else. */
function nameInputRefused(): string {
  const time = new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, '');
  return `import-${time}-${process.pid}.refused.ndjson`;
}

/** Parses `COLUMN=FIELD`; an empty field drops the column. */
function parsePair(value: string, what: string): readonly [string, string] {
  const at = value.lastIndexOf('=');
  return at < 1 ? failUsage(`${what} must be COLUMN=FIELD, not '${value}'`) : [value.slice(0, at), value.slice(at + 1)];
}

/** Creates the progress line of this run. */
function createMeter(name: string, { printProgress }: CommandContext): (position: ImportPosition) => void {
  const startedAt = performance.now();
  let begin: ImportPosition | undefined;
  let shownAt = startedAt;
  return (position) => {
    begin ??= position;
    const now = performance.now();
    if (printProgress === undefined || now - shownAt < showEveryMs) return;
    shownAt = now;
    const seconds = (now - startedAt) / 1000;
    const { stored, refused, percent = 0 } = position;
    const rate = Math.round((stored - begin.stored) / seconds);
    const part = percent - (begin.percent ?? 0);
    const left = part <= 0 ? '' : `, ${formatDuration((seconds * (100 - percent)) / part)} left`;
    const done = position.percent === undefined ? '' : `${Math.floor(percent)} %, `;
    const bad = refused === 0 ? '' : `, ${formatCount(refused)} rejected`;
    printProgress(`${name}: ${done}${formatCount(stored)} stored${bad}, ${formatCount(rate)} events/s${left}`);
  };
}

const exitCodeOf = ({ isInterrupted, refused }: ImportOutcome): number =>
  isInterrupted ? interruptedExit : refused > 0 ? refusedExit : 0;

function printOutcome(outcome: ImportOutcome, { printMessage, printProgress }: CommandContext): void {
  printProgress?.('');
  const { file: name, importedAt, isInterrupted, stored, refused, refusedFile, lines, unknownParameters } = outcome;
  const isAllRefused = stored === 0 && !isInterrupted && name !== '-';
  if (importedAt !== undefined)
    printMessage(
      `tributary: ${name} was already imported at ${importedAt}; nothing was sent. Pass --reimport to import it again`,
    );
  if (unknownParameters.length > 0)
    printMessage(`tributary: the service ignored unknown fields: ${unknownParameters.join(', ')}`);
  if (refused > 0)
    printMessage(
      `tributary: ${formatCount(refused)} events of ${name} were rejected: ${refusedFile ?? ''} has each with its line and the reason${isAllRefused ? '. No event is stored: fix the file or pass --map, then repeat the command' : ''}`,
    );
  if (isInterrupted)
    printMessage(
      name === '-'
        ? `tributary: interrupted: standard input is imported up to line ${lines}; later lines were sent in part, at most`
        : `tributary: interrupted: repeat the command to resume`,
    );
}

export const importCommand = defineCommand({
  name: 'import',
  summary: 'import events from files exactly once; resumes after an interruption',
  usage: ['FILE... [--event EVENT] [--app ID] [--map COLUMN=FIELD]... [OPTION]...'],
  isWithoutData: true,
  arguments: {
    FILE: many(file('JSON lines or CSV with a header (.csv, .tsv), also gzip (.gz); - for standard input')),
  },
  options: {
    event: withDefault(oneOf([...batchMethods.keys()], 'import method of the events'), 'customEvent'),
    app: positive('app id (TRIBUTARY_APP, or the profile)', 'ID'),
    format: oneOf(['ndjson', 'csv'], 'format of the files (by their names)'),
    map: many(parsed('field of a CSV column; an empty FIELD drops the column', 'COLUMN=FIELD', parsePair)),
    parallel: withDefault(positive('maximum number of concurrent requests', 'N', 256), 8),
    state: file('file for the state of the import (FILE.import.json)'),
    reimport: flag('import a finished file again, changed or not; duplicates the stored events'),
    wait: flag('wait until the events are committed to the lake'),
    retryTimeout: withDefault(positive('longest time without a successful request', 'SECONDS'), 3600),
    ...callerOptions,
  },
  details: [
    'The token is read from TRIBUTARY_TOKEN or the profile.',
    'FILE.import.json has the progress: the same command resumes from it, and stores no event twice.',
    'FILE.refused.ndjson has the rejected events with line, field and reason; import-TIME.refused.ndjson those of standard input.',
    'If no event of a file is stored yet, the fixed file, or another --map, starts a new import.',
    'The CSV separator is that of the header: comma, semicolon, tab or bar.',
    'Empty CSV cells are omitted. The field customEventParams.level is the parameter level of the event.',
  ],
  examples: [
    'import events.ndjson',
    'import --event login --app 7 logins.csv.gz --map user=customUserId --map note=',
    'import --wait day-1.ndjson.gz day-2.ndjson.gz',
  ],
  exitCodes: {
    2: 'some events were rejected; the others are stored',
    [interruptedExit]: 'interrupted: repeat the command to resume',
  },
  async run({ FILE: files, ...commandOptions }, context) {
    const { input, stop, printResult, printProgress, printMessage } = context;
    if (files.filter((name) => name === '-').length > 1) failUsage('standard input can be given only once');
    if (commandOptions.state !== undefined && (files.length > 1 || files[0] === '-'))
      failUsage('--state needs exactly one file');
    const { key } = importKinds.get(getMethod(commandOptions.event).kind) ?? {};
    if (commandOptions.wait && (key?.length ?? 0) > 0)
      failUsage(`--wait does not support ${commandOptions.event}: its events have no Idempotency-Key`);
    const access = await resolveImport(commandOptions, context);
    const http = createHttpClient({ connections: commandOptions.parallel });
    const area = createImportArea(http, access);
    let exitCode = 0;
    try {
      await retry(() => area.checkAccess(), {
        forMs: firstAnswerMs,
        everyMs: firstAnswerEveryMs,
        signal: stop,
        retryable: (error) => isAppError(error, 'service_away'),
      });
      for (const name of files) {
        if (stop.aborted) return interruptedExit;
        const startedAt = performance.now();
        const hooks: ImportHooks = { onProgress: createMeter(name, context), onWait: createWaitReporter(context) };
        const options: ImportOptions = {
          idApp: access.idApp,
          event: commandOptions.event,
          format: commandOptions.format ?? formatOf(name),
          map: Object.fromEntries(commandOptions.map),
          parallel: commandOptions.parallel,
          giveUpAfterMs: commandOptions.retryTimeout * 1000,
          again: commandOptions.reimport,
          nowMs: () => Date.now(),
          signal: stop,
          ...(commandOptions.state === undefined ? {} : { stateFile: commandOptions.state }),
        };
        const bytes = name === '-' ? (input?.() ?? failUsage('standard input is not available')) : undefined;
        const outcome =
          bytes === undefined
            ? await importFile(name, area, options, hooks)
            : await importInput(bytes, nameInputRefused(), area, options, hooks);
        const { lastKeys, ...printedOutcome } = outcome;
        printOutcome(outcome, context);
        if (commandOptions.wait && !outcome.isInterrupted) {
          const onWait = (why: string | undefined): void => printProgress?.(why ?? '');
          await waitForLake(area, lastKeys, {
            signal: stop,
            giveUpAfterMs: commandOptions.retryTimeout * 1000,
            onWait,
          });
          printProgress?.('');
        }
        const seconds = Math.round((performance.now() - startedAt) / 100) / 10;
        printResult({ url: access.url, idApp: access.idApp, event: commandOptions.event, ...printedOutcome, seconds });
        exitCode = Math.max(exitCode, exitCodeOf(outcome));
      }
      return exitCode;
    } catch (error) {
      printProgress?.('');
      if (stop.aborted && isAppError(error, 'stopping')) printMessage(`tributary: ${error.message}`);
      else throw error;
      return interruptedExit;
    } finally {
      http.close();
    }
  },
});
