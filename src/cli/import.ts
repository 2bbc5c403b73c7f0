import { formatOf } from '../client/event-source.ts';
import { createHttpClient } from '../client/http-client.ts';
import { batchMethods, createImportArea, waitForLake } from '../client/import-area.ts';
import { importFile } from '../client/import-file.ts';
import { importInput, type ImportHooks, type ImportPosition, type ImportOutcome } from '../client/run-import.ts';
import type { ImportOptions } from '../client/import-state.ts';
import { importKinds, getMethod } from '../datasets/dataset.ts';
import { retry } from '../runtime/async/retry.ts';
import { isAppError } from '../runtime/errors.ts';
import { callerOptions, createWaitNotes, resolveImport } from './caller.ts';
import { verb, type CommandContext } from './command.ts';
import { formatCount, formatDuration } from './answers.ts';
import { file, flag, many, oneOf, parsed, positive, refuse, withDefault } from './words.ts';

const refusedExit = 2;
const interruptedExit = 130;
/** How long a starting service is waited for, ms. */
const firstAnswerMs = 30_000;
const firstAnswerEveryMs = 500;
const showEveryMs = 200;

/** Returns a new file for the refused events of standard input: they exist nowhere else. */
function nameInputRefused(): string {
  const time = new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, '');
  return `import-${time}-${process.pid}.refused.ndjson`;
}

/** Parses `COLUMN=FIELD`; an empty field drops the column. */
function parsePair(value: string, what: string): readonly [string, string] {
  const at = value.lastIndexOf('=');
  return at < 1 ? refuse(`${what} must be COLUMN=FIELD, not '${value}'`) : [value.slice(0, at), value.slice(at + 1)];
}

/** Creates the progress line of this run. */
function createMeter(name: string, { show }: CommandContext): (position: ImportPosition) => void {
  const startedAt = performance.now();
  let begin: ImportPosition | undefined;
  let shownAt = startedAt;
  return (position) => {
    begin ??= position;
    const now = performance.now();
    if (show === undefined || now - shownAt < showEveryMs) return;
    shownAt = now;
    const seconds = (now - startedAt) / 1000;
    const { stored, refused, percent = 0 } = position;
    const rate = Math.round((stored - begin.stored) / seconds);
    const part = percent - (begin.percent ?? 0);
    const left = part <= 0 ? '' : `, ${formatDuration((seconds * (100 - percent)) / part)} left`;
    const done = position.percent === undefined ? '' : `${Math.floor(percent)} %, `;
    const bad = refused === 0 ? '' : `, ${formatCount(refused)} refused`;
    show(`${name}: ${done}${formatCount(stored)} stored${bad}, ${formatCount(rate)} events/s${left}`);
  };
}

const exitCodeOf = ({ isInterrupted, refused }: ImportOutcome): number =>
  isInterrupted ? interruptedExit : refused > 0 ? refusedExit : 0;

function noteOutcome(outcome: ImportOutcome, { note, show }: CommandContext): void {
  show?.('');
  const { file: name, importedAt, isInterrupted, stored, refused, refusedFile, lines, unknownParameters } = outcome;
  const isAllRefused = stored === 0 && !isInterrupted && name !== '-';
  if (importedAt !== undefined)
    note(`tributary: ${name} was imported already, until ${importedAt}; nothing was sent. --reimport imports it again`);
  if (unknownParameters.length > 0)
    note(`tributary: the service knows no fields ${unknownParameters.join(', ')}, and stores the events without them`);
  if (refused > 0)
    note(
      `tributary: ${formatCount(refused)} of ${name} were refused: ${refusedFile ?? ''} has each with its line and the reason${isAllRefused ? '. Nothing is stored: mend the file, or give --map, and repeat the command' : ''}`,
    );
  if (isInterrupted)
    note(
      name === '-'
        ? `tributary: interrupted: up to line ${lines} of standard input all is settled; what follows was sent in part, at most`
        : `tributary: interrupted: the same command goes on where it was`,
    );
}

export const importCommand = verb({
  name: 'import',
  summary: 'send events of files to a running service, each once, whatever is stopped in between',
  usage: ['FILE... [--event EVENT] [--app ID] [--map COLUMN=FIELD]... [OPTION]...'],
  isWithoutData: true,
  words: {
    FILE: many(file('JSON lines, an event each, or CSV with a header (.csv, .tsv); .gz too; - for standard input')),
  },
  options: {
    event: withDefault(oneOf([...batchMethods.keys()], 'what each line is'), 'customEvent'),
    app: positive('whose events they are (TRIBUTARY_APP, or the profile)', 'ID'),
    format: oneOf(['ndjson', 'csv'], 'what the files are, where their names do not say it'),
    map: many(parsed('the field that a column of CSV becomes; none drops it', 'COLUMN=FIELD', parsePair)),
    parallel: withDefault(positive('requests on their way at a time', 'N', 256), 8),
    state: file('where the state of the import is kept, instead of beside the file'),
    reimport: flag('import a finished file again, changed or not; duplicates the stored events'),
    wait: flag('wait until the events are committed to the lake'),
    retryTimeout: withDefault(positive('longest time without a successful request', 'SECONDS'), 3600),
    ...callerOptions,
  },
  details: [
    'The token comes from TRIBUTARY_TOKEN or the profile.',
    'FILE.import.json says how far the import is: the same command goes on from there, and an event is stored once.',
    'FILE.refused.ndjson has the events that were refused, each with its line, the field and the reason; of standard input it is import-TIME.refused.ndjson.',
    'Where nothing of a file was stored, it is imported anew once it is mended, or with another --map.',
    'CSV has commas between its cells, or what its header has instead: semicolons, tabs, bars.',
    'Cells of CSV that are empty are left out; a field customEventParams.level is a parameter of the event.',
  ],
  examples: [
    'import events.ndjson',
    'import --event login --app 7 logins.csv.gz --map user=customUserId --map note=',
    'import --wait day-1.ndjson.gz day-2.ndjson.gz',
  ],
  exitCodes: {
    2: 'some events were refused, and the others stored',
    [interruptedExit]: 'interrupted: the same command goes on',
  },
  async run({ FILE: files, ...given }, context) {
    const { input, stop, answer, show, note } = context;
    if (files.filter((name) => name === '-').length > 1) refuse('standard input can be read once');
    if (given.state !== undefined && (files.length > 1 || files[0] === '-')) refuse('--state is for one file');
    const { key } = importKinds.get(getMethod(given.event).kind) ?? {};
    if (given.wait && (key?.length ?? 0) > 0) refuse(`--wait cannot follow ${given.event}: it is known by its own id`);
    const access = await resolveImport(given, context);
    const http = createHttpClient({ connections: given.parallel });
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
        const hooks: ImportHooks = { onProgress: createMeter(name, context), onWait: createWaitNotes(context) };
        const options: ImportOptions = {
          idApp: access.idApp,
          event: given.event,
          format: given.format ?? formatOf(name),
          map: Object.fromEntries(given.map),
          parallel: given.parallel,
          patienceMs: given.retryTimeout * 1000,
          again: given.reimport,
          nowMs: () => Date.now(),
          signal: stop,
          ...(given.state === undefined ? {} : { stateFile: given.state }),
        };
        const bytes = name === '-' ? (input?.() ?? refuse('there is no standard input')) : undefined;
        const outcome =
          bytes === undefined
            ? await importFile(name, area, options, hooks)
            : await importInput(bytes, nameInputRefused(), area, options, hooks);
        const { lastKeys, ...shown } = outcome;
        noteOutcome(outcome, context);
        if (given.wait && !outcome.isInterrupted) {
          const onWait = (why: string | undefined): void => show?.(why ?? '');
          await waitForLake(area, lastKeys, { signal: stop, patienceMs: given.retryTimeout * 1000, onWait });
          show?.('');
        }
        const seconds = Math.round((performance.now() - startedAt) / 100) / 10;
        answer({ url: access.url, idApp: access.idApp, event: given.event, ...shown, seconds });
        exitCode = Math.max(exitCode, exitCodeOf(outcome));
      }
      return exitCode;
    } catch (error) {
      show?.('');
      if (stop.aborted && isAppError(error, 'stopping')) note(`tributary: ${error.message}`);
      else throw error;
      return interruptedExit;
    } finally {
      http.close();
    }
  },
});
