import { renderProblems, type EventCheck } from '../client/check-events.ts';
import { others, toParameters } from '../client/event-mapping.ts';
import { formatOf, type SourceFormat } from '../client/event-source.ts';
import { createHttpClient } from '../client/http-client.ts';
import {
  batchMethods,
  createImportArea,
  waitForLake,
  type ImportAccess,
  type ImportArea,
} from '../client/import-area.ts';
import { checkInput, importFile } from '../client/import-file.ts';
import { importInput, type ImportHooks, type ImportPosition, type ImportOutcome } from '../client/run-import.ts';
import type { ImportOptions } from '../client/import-state.ts';
import { importKinds, getMethod } from '../datasets/dataset.ts';
import { retry } from '../runtime/async/retry.ts';
import { isAppError } from '../runtime/errors.ts';
import { defined } from '../runtime/files/checksummed-json.ts';
import { createTimeReader, namedTimeFormats, timeCodes } from '../runtime/time-format.ts';
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

/** Parses `COLUMN=FIELD`; an empty field drops the column. `*` is each other column. */
function parsePair(value: string, what: string): readonly [string, string] {
  const at = value.lastIndexOf('=');
  if (at < 1) failUsage(`${what} must be COLUMN=FIELD, not '${value}'`);
  const [column, field] = [value.slice(0, at), value.slice(at + 1)];
  if ((column === others || field.includes(others)) && (column !== others || !['', toParameters].includes(field)))
    failUsage(`${what} ${others}= must be '${others}=' or '${others}=${toParameters}', not '${value}'`);
  return [column, field];
}

function parseTimeFormat(value: string, what: string): string {
  if (createTimeReader(value) !== undefined) return value;
  const codes = timeCodes.map((code) => `%${code}`).join(' ');
  return failUsage(`${what} must be ${namedTimeFormats.join(', ')}, or a date of ${codes}, not '${value}'`);
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

function printCheck(what: string, check: EventCheck, { printMessage }: CommandContext): void {
  if (check.refused === 0) return;
  printMessage(`tributary: ${formatCount(check.refused)} of ${what} are invalid:`);
  for (const line of renderProblems(check)) printMessage(`  ${line}`);
}

interface ImportWords {
  readonly event: string;
  readonly format?: SourceFormat | undefined;
  readonly map: readonly (readonly [string, string])[];
  readonly timeFormat?: string | undefined;
  readonly parallel: number;
  readonly retryTimeout: number;
  readonly reimport: boolean;
  readonly force: boolean;
  readonly dryRun: boolean;
  readonly wait: boolean;
  readonly state?: string | undefined;
}

function toImportOptions(name: string, idApp: number, words: ImportWords, signal: AbortSignal): ImportOptions {
  const { event, format, map, timeFormat, parallel, retryTimeout, reimport, force, state } = words;
  return {
    idApp,
    event,
    format: format ?? formatOf(name),
    map: Object.fromEntries(map),
    parallel,
    giveUpAfterMs: retryTimeout * 1000,
    again: reimport,
    force,
    nowMs: () => Date.now(),
    signal,
    ...defined({ timeFormat, stateFile: state }),
  };
}

interface ImportRun {
  readonly words: ImportWords;
  readonly access: ImportAccess;
  readonly area: ImportArea;
  readonly context: CommandContext;
}

/** Imports or checks one file, or standard input. Returns the exit code. */
async function runOne(name: string, { words, access, area, context }: ImportRun): Promise<number> {
  const { input, stop, printResult, printProgress } = context;
  const startedAt = performance.now();
  const options = toImportOptions(name, access.idApp, words, stop);
  const bytes = name === '-' ? (input?.() ?? failUsage('standard input is not available')) : undefined;
  const head = { url: access.url, idApp: access.idApp, event: words.event };
  const took = (): { readonly seconds: number } => ({
    seconds: Math.round((performance.now() - startedAt) / 100) / 10,
  });
  if (words.dryRun) {
    const check = await checkInput(name, bytes, area, options, { onWait: createWaitReporter(context) });
    if (check === undefined) return interruptedExit;
    printCheck(name, check, context);
    printResult({ ...head, file: name, isDryRun: true, ...check, ...took() });
    return check.refused > 0 ? refusedExit : 0;
  }
  const hooks: ImportHooks = {
    onProgress: createMeter(name, context),
    onWait: createWaitReporter(context),
    onCheck: (check) =>
      printCheck(`the first ${formatCount(check.valid + check.refused)} events of ${name}`, check, context),
  };
  const outcome =
    bytes === undefined
      ? await importFile(name, area, options, hooks)
      : await importInput(bytes, nameInputRefused(), area, options, hooks);
  const { lastKeys, ...printedOutcome } = outcome;
  printOutcome(outcome, context);
  if (words.wait && !outcome.isInterrupted) {
    const onWait = (why: string | undefined): void => printProgress?.(why ?? '');
    await waitForLake(area, lastKeys, { signal: stop, giveUpAfterMs: options.giveUpAfterMs, onWait });
    printProgress?.('');
  }
  printResult({ ...head, ...printedOutcome, ...took() });
  return exitCodeOf(outcome);
}

export const importCommand = defineCommand({
  name: 'import',
  summary: 'import events from files exactly once; resumes after an interruption',
  usage: ['FILE... [--event EVENT] [--app ID] [--map COLUMN=FIELD]... [--dry-run] [OPTION]...'],
  isWithoutData: true,
  arguments: {
    FILE: many(file('JSON lines or CSV with a header (.csv, .tsv), also gzip (.gz); - for standard input')),
  },
  options: {
    event: withDefault(oneOf([...batchMethods.keys()], 'import method of the events'), 'customEvent'),
    app: positive('app id (TRIBUTARY_APP, or the profile)', 'ID'),
    format: oneOf(['ndjson', 'csv'], 'format of the files (by their names)'),
    map: many(parsed('field of a CSV column or of a path in JSON; an empty FIELD drops it', 'COLUMN=FIELD', parsePair)),
    timeFormat: parsed(
      "form of eventTimestamp: auto, s, ms, us, ns, iso, or as '%d.%m.%Y %H:%M' (auto)",
      'FORMAT',
      parseTimeFormat,
    ),
    dryRun: flag('validate all events and store nothing'),
    force: flag('import even if all of the first 1,000 events are invalid'),
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
    "--map '*=customEventParams.*' makes a parameter of each other column, --map '*=' drops them.",
    'With --map, numbers of JSON are sent as texts, and members that are null are omitted.',
    'By default eventTimestamp is Unix s, ms, us or ns, or ISO 8601; without an offset it is UTC.',
    'The service validates the first 1,000 events before any is sent.',
  ],
  examples: [
    'import events.ndjson',
    'import --event login --app 7 logins.csv.gz --map user=customUserId --map note=',
    "import own.csv --map user=customUserId --map time=eventTimestamp --map '*=customEventParams.*'",
    'import --dry-run --map e.customUserId=customUserId events.ndjson',
    'import --wait day-1.ndjson.gz day-2.ndjson.gz',
  ],
  exitCodes: {
    2: 'some events were rejected; the others are stored',
    [interruptedExit]: 'interrupted: repeat the command to resume',
  },
  async run({ FILE: files, ...commandOptions }, context) {
    const { stop, printProgress, printMessage } = context;
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
        exitCode = Math.max(exitCode, await runOne(name, { words: commandOptions, access, area, context }));
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
