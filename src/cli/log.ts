import { isRecord } from '../runtime/files/checksummed-json.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { findSize } from '../runtime/files/file-checks.ts';
import { caughtUp, followFile, splitLines, type FollowedLine } from '../runtime/files/followed-lines.ts';
import { streamFile } from '../runtime/files/input-file.ts';
import { findTarget } from '../runtime/processes/procfs.ts';
import { readServiceStates } from '../runtime/processes/service-state.ts';
import { dataPaths } from '../config.ts';
import path from 'node:path';
import { defineCommand, resolveConfig, type CommandContext, type ParsedOptions } from './command.ts';
import { escapeText, formatTime, formatValue, padText } from './human-output.ts';
import { failUsage, file, flag, oneOf, optional, positive, text } from './option-specs.ts';

const levels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const;

/** Widths of the level and of the process on a terminal. */
const [levelWidth, processWidth] = [5, 10];
/** Members of a log line that are not shown, or not as its fields. */
const own = ['level', 'time', 'pid', 'hostname', 'role', 'process', 'stage', 'msg'];

const options = {
  follow: { ...flag('show new lines until it is stopped'), letter: 'f' },
  lines: { ...positive('show only the last N lines that match'), letter: 'n' },
  level: oneOf(levels, 'lowest level of the lines', 'LEVEL'),
  role: text('role or process, such as compact or ingest-1', 'ROLE'),
  app: positive('app id, in the field idApp', 'ID'),
  text: text('text that a line contains; case is ignored'),
  pretty: flag('print lines for people, also in a pipe'),
} as const;

type LogOptions = Pick<ParsedOptions<typeof options>, 'level' | 'role' | 'app' | 'text'>;

/** Returns the fields of a log line; undefined for another line, such as the trace of a crash. */
function parseLogLine(line: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = line.startsWith('{') ? JSON.parse(line) : undefined;
    return isRecord(value) && typeof value['msg'] === 'string' ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Reports whether a line matches. One that is not a log line has no level and no fields: it matches each level, since it
 * may be the trace of a crash, and no role and no app.
 */
export function matchesLog(line: string, { level, role, app, text: contained }: LogOptions): boolean {
  if (contained !== undefined && !line.toLowerCase().includes(contained.toLowerCase())) return false;
  const fields = parseLogLine(line);
  if (fields === undefined) return role === undefined && app === undefined;
  const levelAt = levels.findIndex((name) => name === fields['level']);
  if (level !== undefined && levelAt !== -1 && levelAt < levels.indexOf(level)) return false;
  if (role !== undefined && fields['role'] !== role && fields['process'] !== role) return false;
  return app === undefined || String(fields['idApp']) === String(app);
}

/** Lays out a line: time in the zone of TZ, level, process, message and fields. */
export function formatLogLine(line: string): string {
  const fields = parseLogLine(line);
  if (fields === undefined) return escapeText(line);
  const { level, time, process = fields['role'] ?? '', msg } = fields;
  const others = Object.entries(fields).filter(([name]) => !own.includes(name));
  const atMs = Date.parse(String(time));
  const shown = [
    Number.isNaN(atMs) ? String(time) : formatTime(atMs),
    padText(String(level).toUpperCase(), levelWidth),
    padText(escapeText(String(process)), processWidth),
    escapeText(String(msg)),
    ...(others.length === 0 ? [] : [formatValue(Object.fromEntries(others), '')]),
  ];
  return shown.join('  ');
}

function noLog(what: string): AppError {
  return new AppError('not_found', what, {
    hint: "Pass its log file, or pipe the log: 'journalctl -u tributary -o cat | tributary log -', or 'docker logs NAME 2>&1 | tributary log -'.",
  });
}

/**
 * Finds the log of the service on a data folder: the file that its standard error is, or that of `make init`. Error:
 * `not_found` if a running service writes to no file; the file of an earlier one is not shown.
 */
async function findLogFile(dataDir: string): Promise<string> {
  const [running] = readServiceStates(dataPaths(dataDir).run);
  const target = running === undefined ? undefined : findTarget(`/proc/${running.pid}/fd/2`);
  if (target !== undefined) {
    if (target.startsWith('/') && !target.startsWith('/dev/') && (await findSize(target)) !== undefined) return target;
    throw noLog(`the running service (pid ${running?.pid}) writes its log to ${target}, which is not a file`);
  }
  const usual = path.join(dataDir, 'service.log');
  if ((await findSize(usual)) === undefined) throw noLog(`no log file found: ${usual} does not exist`);
  return usual;
}

async function* readLines(
  source: string,
  follow: boolean,
  { input, stop, unread }: CommandContext,
): AsyncGenerator<FollowedLine, void, void> {
  const signal = unread === undefined ? stop : AbortSignal.any([stop, unread]);
  if (source === '-') {
    if (input === undefined) failUsage('standard input cannot be read');
    yield* splitLines(input());
    return;
  }
  try {
    yield* splitLines(follow ? followFile(source, signal) : streamFile(source));
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) throw noLog(`${source} does not exist`);
    throw isSystemError(error, 'EACCES', 'EISDIR')
      ? new AppError('disk', `cannot read ${source}`, { cause: error, hint: 'Check its path and its permissions.' })
      : error;
  }
}

export const logCommand = defineCommand({
  name: 'log',
  summary: "show the service's log, filtered and laid out",
  details: [
    'FILE is the log of the running service by default, or service.log in the data folder. A dash reads standard input.',
    'Prints lines for people on a terminal, and the JSON lines in a pipe or with --json.',
  ],
  arguments: { FILE: optional(file('log file')) },
  options,
  examples: [
    'log --follow --level warn',
    'log -n 100 --role compact',
    "log --app 7 --text 'request refused'",
    'log - --pretty < service.log',
  ],
  async run({ FILE: named, data, json, follow, lines: most, pretty, ...filter }, context) {
    const { environment, print, printMessage, screen, stop, unread } = context;
    const source =
      named ?? (await findLogFile(resolveConfig(environment, { TRIBUTARY_DATA_DIR: data }, 'existing').dataDir));
    const isLaidOut = !json && (pretty || screen !== undefined);
    const show = (line: string): void => print(isLaidOut ? formatLogLine(line) : line);
    /** The last lines of the past; undefined once they are shown. */
    let past: string[] | undefined = most === undefined ? undefined : [];
    const showPast = (): void => {
      past?.forEach(show);
      past = undefined;
    };
    if (screen !== undefined && !json) printMessage(`tributary: ${source === '-' ? 'standard input' : source}`);
    for await (const line of readLines(source, follow, context)) {
      if (stop.aborted || unread?.aborted === true) break;
      if (line === caughtUp) showPast();
      else if (line !== '' && matchesLog(line, filter)) {
        if (past === undefined) show(line);
        else if (past.push(line) > (most ?? 0)) past.shift();
      }
    }
    showPast();
  },
});
