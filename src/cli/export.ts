import { createHttpClient } from '../client/http-client.ts';
import { assertOutputWritable, fetchExport, getManifestKey } from '../client/export-output.ts';
import { waitForExport, type ExportArguments, type ExportReport } from '../client/export-area.ts';
import { parseManifest } from '../reports/manifest.ts';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import { isAppError, isDiskFull } from '../runtime/errors.ts';
import { acceptFormerNames, withFormerNames } from '../runtime/former-names.ts';
import { removeFile } from '../runtime/files/durable-file.ts';
import { readPlain } from '../runtime/files/input-file.ts';
import { type ExportCommandClient, callerOptions, withExportClient } from './service-client.ts';
import { type CommandContext, defineCommand, type CommandGroup, type CommandSpec } from './command.ts';
import { formatBytes, formatCount } from './human-output.ts';
import { eventAliases, eventNames } from '../datasets/dictionaries.ts';
import { endingOf } from '../datasets/file-formats.ts';
import { defaultOutput, requestOptions, toRequest } from './export-request.ts';
import { oneOf, parsed, positive, failUsage, text } from './option-specs.ts';

const standardOutput = '-';

/** Downloads a finished export and verifies it against the signed manifest. */
async function fetchFiles(
  caller: ExportCommandClient,
  report: ExportReport,
  output: string,
  named: string,
  context: CommandContext,
) {
  const { area, url, onWait } = caller;
  const { stop, printProgress } = context;
  // Separate connections: calls must not wait for slow downloads.
  const http = createHttpClient();
  const total = (report.files ?? []).reduce((sum, { bytes }) => sum + bytes, 0);
  let have = 0;
  try {
    const key = await getManifestKey(url, { http });
    return await fetchExport(report, output, (manifest) => parseManifest(manifest, key).files, {
      http,
      signal: stop,
      renew: async () => (await area.get(report.id)).files ?? [],
      onBytes(bytes) {
        have += bytes;
        printProgress?.(`export ${report.id}: ${formatBytes(have)} of ${formatBytes(total)} downloaded`);
      },
      onWait,
    });
  } catch (error) {
    if (stop.aborted || isAppError(error, 'service_away') || isDiskFull(error))
      context.printMessage(
        `tributary: downloaded data is kept; run 'tributary export download ${report.id} -o ${named}' to resume`,
      );
    throw error;
  } finally {
    http.close();
  }
}

/** Writes a downloaded file to standard output until the reader closes it, then removes the file. */
async function writeOut(file: string, { write, unread }: CommandContext): Promise<void> {
  try {
    for await (const piece of readPlain(file, false)) {
      if (unread?.aborted === true) return;
      await write?.(piece);
    }
  } finally {
    await removeFile(file);
  }
}

/**
 * Downloads a finished export and prints its files. Standard output gets only the verified bytes; the rest is a note.
 * `ending` is the extension of the file: `.csv.gz`.
 */
async function downloadExportTo(
  caller: ExportCommandClient,
  report: ExportReport,
  { output, ending }: { readonly output: string; readonly ending: string },
  context: CommandContext,
): Promise<void> {
  const { id: idRawExport, data } = report;
  const { version, nextSinceVersion, timestampKeptUntil, timestampWatermark } = data;
  const isOut = output === standardOutput;
  const downloadPath = isOut ? `export-${idRawExport}.stdout${ending}` : output;
  const { files, rows, bytes } = await fetchFiles(caller, report, downloadPath, output, context);
  context.printProgress?.('');
  const where = isOut ? 'on standard output' : `in ${files.join(', ')}`;
  context.printMessage(`tributary: ${formatCount(rows)} rows, ${formatBytes(bytes)} ${where}`);
  const basis = { version, nextSinceVersion, timestampKeptUntil, timestampWatermark };
  if (!isOut) return context.printResult({ url: caller.url, idRawExport, files, rows, bytes, ...basis });
  await writeOut(downloadPath, context);
  context.printMessage(`tributary: version ${String(version)}, nextSinceVersion ${String(nextSinceVersion)}`);
}

const interruptedExit = 130;
const interrupted = { [interruptedExit]: 'interrupted: standard error says how to resume' };

const userOptions = {
  user: positive('user id (TRIBUTARY_USER, or the profile)', 'ID'),
  ...callerOptions,
};
const outputOption = {
  output: {
    ...text(
      'output file, with the format by extension (.csv, .csv.gz, .jsonl, .parquet, .xlsx); a folder with a trailing slash; - for standard output',
      'FILE',
    ),
    letter: 'o',
  },
};
const id = {
  ID: parsed("export id, see 'tributary export list'", 'ID', (value, what) =>
    /^[1-9]\d{0,15}$/.test(value) ? value : failUsage(`${what} must be an export id, not '${value}'`),
  ),
};

/** Runs a call; an interruption ends with a hint and its own exit code. */
async function interruptibly<T>(context: CommandContext, run: () => Promise<T>): Promise<T | number> {
  try {
    return await run();
  } catch (error) {
    if (!context.stop.aborted || !isAppError(error)) throw error;
    context.printMessage(`tributary: ${error.message}. ${error.hint ?? ''}`.trim());
    return interruptedExit;
  } finally {
    context.printProgress?.('');
  }
}

const awaitEnd = (
  { area }: ExportCommandClient,
  exportId: string,
  { stop, printProgress }: CommandContext,
): Promise<ExportReport> =>
  waitForExport(area, exportId, {
    signal: stop,
    onProgress: ({ status, percent }) =>
      printProgress?.(`export ${exportId}: ${status}${percent === undefined ? '' : `, ${Math.floor(percent)} %`}`),
  });

const fileOf = (output: string | undefined): string | undefined => (output === standardOutput ? undefined : output);

async function assertOutput(output: string | undefined): Promise<void> {
  if (fileOf(output) !== undefined) await assertOutputWritable(output ?? '');
}

/** Notes apps of a filter that the account does not have: the export succeeds without their rows. */
async function noteUnknownApps(
  { area }: ExportCommandClient,
  parameters: ExportArguments,
  { printMessage }: CommandContext,
) {
  for (const [name, idApp] of parameters) {
    if (name !== 'idApp') continue;
    // A service without this method can still export.
    const { apps } = await area.call('/api/data/v1/apps.json', [['search', idApp]]).catch((error: unknown) => {
      if (!isAppError(error, 'service_refused')) throw error;
      return { apps: undefined };
    });
    const isThere = !Array.isArray(apps) || apps.some((app: { readonly idApp?: unknown }) => app.idApp === idApp);
    if (!isThere) printMessage(`tributary: your account has no app ${idApp}; the export has no rows of it`);
  }
}

const order = (event: string) =>
  defineCommand({
    name: event,
    summary: `export ${event} to a file`,
    usage: ['[-o FILE] [--from DAY] [--to DAY] [--selectors A,B] [OPTION]...'],
    isWithoutData: true,
    family: { name: 'EVENT', summary: 'create an export of an event and download it' },
    options: { ...outputOption, ...requestOptions, ...userOptions },
    details: [
      'Creates the export, waits for it and downloads it. Resume an interrupted download with export download.',
      'Each file is verified by the signed manifest before it gets its name.',
    ],
    examples: [
      `export ${event} --from yesterday -o ${event}.csv`,
      `export ${event} --from 2026-05-01 --to 2026-05-31 --timezone Europe/Berlin --selectors eventId,tsEvent -o ${event}.parquet`,
    ],
    exitCodes: interrupted,
    run: (commandOptions, context) =>
      interruptibly(context, () =>
        withExportClient(commandOptions, context, async (caller) => {
          const request = toRequest(event, commandOptions, fileOf(commandOptions.output), Date.now());
          await assertOutput(commandOptions.output);
          const created = await caller.area.call('/api/raw/v1/export/create.json', request.parameters, true);
          const exportId = String(created['idRawExport']);
          const { days, timezone } = request;
          const when = days === undefined ? '' : `, ${days.from} to ${days.to} in ${timezone}`;
          context.printMessage(`tributary: export ${exportId} of ${event}${when}, from ${caller.url}`);
          await noteUnknownApps(caller, request.parameters, context);
          const report = await awaitEnd(caller, exportId, context);
          const output = commandOptions.output ?? defaultOutput(event, exportId, request);
          await downloadExportTo(caller, report, { output, ending: endingOf(request.form) }, context);
        }),
      ),
  });

/** Returns a part of a response whose table has the current names only, and whose JSON has the former ones too. */
const withCurrentNames = (of: 'export' | 'overLimit' | 'preview', answer: object): Readonly<Record<string, unknown>> =>
  withFormerNames(of, acceptFormerNames(of, answer));

const known = oneOf(eventNames, 'event to export', 'EVENT');
const eventWord: typeof known = {
  ...known,
  parse: (name, what) => known.parse?.(eventAliases.get(name) ?? name, what),
};

const dryRun = (name: 'estimate' | 'preview', summary: string) =>
  defineCommand({
    name,
    summary: `${summary}; creates no export`,
    usage: ['EVENT [--from DAY] [--to DAY] [--selectors A,B] [OPTION]...'],
    isWithoutData: true,
    arguments: { EVENT: eventWord },
    options: { ...requestOptions, ...userOptions },
    examples: [`export ${name} customEvents --from 2026-05-01 --to 2026-05-31`],
    run: ({ EVENT: event, ...given }, context) =>
      withExportClient(given, context, async ({ area }) => {
        const { parameters } = toRequest(event, given, undefined, Date.now());
        const answer = await area.call(`/api/raw/v1/export/${name}.json`, parameters);
        const { overLimits } = answer;
        if (!Array.isArray(overLimits)) return withCurrentNames('preview', answer);
        const current = overLimits.map((overLimit: object) => withCurrentNames('overLimit', overLimit));
        return withCurrentNames('preview', { ...answer, overLimits: current });
      }),
  });

const listUrl = '/api/raw/v1/export/list.json';

/** Returns the exports of a list for a table. */
function namedRows(exports: unknown): readonly object[] {
  if (!Array.isArray(exports)) return [];
  return exports.map((row: object) => {
    const { arguments: _, ...shown } = membersOf(row);
    return withCurrentNames('export', shown);
  });
}

const list = defineCommand({
  name: 'list',
  summary: 'list your exports, newest first',
  isList: true,
  isWithoutData: true,
  options: {
    search: text('only exports with this text in name, id, event, event name, schedule or app (all)', 'TEXT'),
    ...userOptions,
  },
  examples: ['export list', 'export list --search revenue'],
  run: ({ search, ...given }, context) =>
    withExportClient(given, context, async ({ area }) => {
      if (search === undefined) return namedRows((await area.call('/api/report/v1/file/list.json', [])).reports);
      const rows: object[] = [];
      for (let before: string | undefined; ;) {
        const older = before === undefined ? [] : [['before', before] as const];
        const page = await area.call(listUrl, [['search', search], ['limit', '200'], ...older]);
        rows.push(...namedRows(page.exports));
        if (typeof page.before !== 'string') return rows;
        ({ before } = page);
      }
    }),
});

const ofOneExport = { isWithoutData: true, arguments: id, options: userOptions } as const;

const get = defineCommand({
  name: 'get',
  summary: "show an export's status, progress and download links",
  ...ofOneExport,
  examples: ['export get 17'],
  run: ({ ID: exportId, ...given }, context) =>
    withExportClient(given, context, async ({ area }) => withCurrentNames('export', (await area.get(exportId)).data)),
});

const wait = defineCommand({
  name: 'wait',
  summary: 'wait until an export ends, then show its status and links',
  ...ofOneExport,
  examples: ['export wait 17'],
  exitCodes: interrupted,
  run: ({ ID: exportId, ...given }, context) =>
    interruptibly(context, () =>
      withExportClient(given, context, async (caller) =>
        withCurrentNames('export', (await awaitEnd(caller, exportId, context)).data),
      ),
    ),
});

const cancel = defineCommand({
  name: 'cancel',
  summary: 'cancel an export that is in progress',
  ...ofOneExport,
  examples: ['export cancel 17'],
  run: ({ ID: exportId, ...given }, context) =>
    withExportClient(given, context, ({ area }) =>
      area.call('/api/raw/v1/export/cancel.json', [['idRawExport', exportId]]),
    ),
});

const download = defineCommand({
  name: 'download',
  summary: 'wait for an export and download it; resumes an earlier download',
  ...ofOneExport,
  options: { ...outputOption, ...userOptions },
  examples: ['export download 17 -o may.csv', 'export download 17 -o may/'],
  exitCodes: interrupted,
  run: ({ ID: exportId, ...commandOptions }, context) =>
    interruptibly(context, () =>
      withExportClient(commandOptions, context, async (caller) => {
        await assertOutput(commandOptions.output);
        const report = await awaitEnd(caller, exportId, context);
        const [first] = report.files ?? [];
        const kind = /\.[a-z]+(?:\.zst)?(?=(?:\.gz)?$)/.exec(first?.name ?? '')?.[0] ?? '.csv';
        const output = commandOptions.output ?? `export-${exportId}${kind}`;
        await downloadExportTo(caller, report, { output, ending: kind }, context);
      }),
    ),
});

/** Declares the verb of an event by a former name, which is not listed. */
const orderAs = ([name, event]: readonly [string, string]): CommandSpec => {
  const { summary: _summary, examples: _examples, ...rest } = order(event);
  return { ...rest, name };
};

export const exportCommand: CommandGroup = {
  name: 'export',
  summary: 'create, list, wait for, download, cancel, estimate and preview exports of a running service',
  commands: [
    list,
    get,
    wait,
    download,
    cancel,
    dryRun('estimate', 'estimate the rows, bytes and duration of an export'),
    dryRun('preview', 'show the first 20 rows of an export'),
    ...eventNames.map(order),
    ...[...eventAliases].map(orderAs),
  ],
};
