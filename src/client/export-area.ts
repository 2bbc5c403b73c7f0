import { createBackoff, pause } from '../runtime/async/retry.ts';
import { AppError, isAppError, isSystemError } from '../runtime/errors.ts';
import { retryAfterMs, toLine, type HttpAnswer, type HttpClient } from './http-client.ts';
import type { Later } from './import-area.ts';

/** Where and as whom exports are ordered. */
export interface ExportAccess {
  /** The address of the export area, without a slash at its end. */
  readonly url: string;
  readonly idUser: string;
  readonly secret: string;
}

/** Arguments of a call, by name; a name may be there several times. */
export type ExportArguments = readonly (readonly [name: string, value: string])[];

/** The data of an answer. */
export type ExportData = Readonly<Record<string, unknown>>;

/** A file of a finished export. */
export interface ExportFile {
  readonly name: string;
  /** Needs no header, and ends. */
  readonly link: string;
  readonly rows: number;
  readonly bytes: number;
  readonly sha256: string;
}

/** A request, as the service answers it. */
export interface ExportReport {
  readonly id: string;
  readonly status: string;
  /** 0 to 100, while it is in progress. */
  readonly percent: number | undefined;
  /** Why it failed, where the service says it. */
  readonly error: string | undefined;
  /** Of a finished one. */
  readonly files: readonly ExportFile[] | undefined;
  /** Whether each of them begins with a line of column names. */
  readonly hasHeader: boolean;
  readonly manifestLink: string | undefined;
  /** The answer's data, as they came. */
  readonly data: ExportData;
}

/** The export area, as a user calls it. */
export interface ExportArea {
  /**
   * Calls a method. Waits out what passes: quotas, and answers that the service cannot do it now. Errors:
   * `service_refused` with what is wrong; `service_away` where no answer came: with `isChange`, it may have been done.
   */
  call(method: string, parameters: ExportArguments, isChange?: boolean): Promise<ExportData>;
  /** The state of a request. Errors as of `call`. */
  get(id: string): Promise<ExportReport>;
}

export interface ExportAreaOptions {
  readonly signal: AbortSignal;
  /** Something has to wait, and why; undefined: it goes on. */
  readonly onWait: (why: string | undefined) => void;
  /** How long the service may be away before that is an error, milliseconds. */
  readonly patienceMs?: number;
}

const firstWaitMs = 500;
const longestWaitMs = 10_000;
const defaultPatienceMs = 60_000;

interface Envelope {
  readonly message?: unknown;
  readonly data?:
    | (ExportData & { readonly error?: { readonly detail?: unknown; readonly info?: { readonly exports?: unknown } } })
    | null;
}

function parseEnvelope(text: string): Envelope {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}

function describe({ status, text }: HttpAnswer): string {
  const { message, data } = parseEnvelope(text);
  const detail = data?.error?.detail;
  const what = typeof message === 'string' ? message : text.slice(0, 200).trim();
  const shown = typeof detail === 'string' ? detail : JSON.stringify(detail ?? null);
  return toLine(shown === 'null' ? `${status} ${what}` : `${what}: ${shown}`);
}

const hints: Readonly<Record<number, string>> = {
  403: "Compare the user's id and secret with those that 'tributary user add' has answered.",
  404: "'tributary export list' shows the requests that there are.",
};

/** Names the exports in progress that leave no room for another; undefined for another refusal. */
function hintOfFull({ text }: HttpAnswer): string | undefined {
  const exports = parseEnvelope(text).data?.error?.info?.exports;
  if (!Array.isArray(exports) || exports.length === 0) return undefined;
  const ids = (exports as { readonly idRawExport?: unknown }[]).map(({ idRawExport }) => toLine(String(idRawExport)));
  return `Wait until one of these ends, or run 'tributary export cancel ID' for one of them: ${ids.join(', ')}.`;
}

function refusal(url: string, answer: HttpAnswer): AppError {
  return new AppError('service_refused', `${url} refuses: ${describe(answer)}`, {
    hint:
      hintOfFull(answer) ??
      hints[answer.status] ??
      "'tributary export EVENT --help' and docs/api.md have what is allowed.",
  });
}

/** What a connection fails with before anything was sent on it. */
const unsent = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'];

/** The error of a change that may have been made or not. */
function unknownChange(url: string, why: string, cause?: unknown): AppError {
  return new AppError('service_away', `${url} has not said what became of it: ${why}`, {
    cause,
    hint: "Look at 'tributary export list' before you repeat the command: it may be ordered already.",
  });
}

/** The name of a file, by its link. What a service answers becomes no path out of the folder. Error: `service_refused`. */
function nameOf(link: string): string {
  const name = URL.canParse(link) ? (new URL(link).pathname.split('/').at(-1) ?? '') : '';
  if (/^\w[\w.-]*$/.test(name)) return name;
  throw new AppError('service_refused', `the service names a file by ${link.slice(0, 200)}, which is no link to one`);
}

function toFile(value: unknown): ExportFile {
  const { link, rows, bytes, sha256 } = value as Readonly<Record<string, unknown>>;
  const [address, hash] = [String(link), String(sha256)];
  return { name: nameOf(address), link: address, rows: Number(rows), bytes: Number(bytes), sha256: hash };
}

function toReport(id: string, data: ExportData): ExportReport {
  const { status, progress, errorMessage, files: listed, hasHeader, manifest } = data;
  const files = Array.isArray(listed) ? listed.map(toFile) : undefined;
  const link = (manifest as { readonly link?: unknown } | undefined)?.link;
  return {
    id,
    status: toLine(String(status)),
    percent: typeof progress === 'string' ? Number.parseFloat(progress) : undefined,
    error: typeof errorMessage === 'string' ? toLine(errorMessage) : undefined,
    files,
    // A service of 0.3 does not say it.
    hasHeader: typeof hasHeader === 'boolean' ? hasHeader : files?.[0]?.name.includes('.csv') === true,
    manifestLink: typeof link === 'string' ? link : undefined,
    data,
  };
}

/** Says whether a request has not ended. */
export function isInProgress({ status }: ExportReport): boolean {
  return status === 'In progress';
}

/** Creates the calls of one user, by HTTP Basic. */
export function createExportArea(
  http: HttpClient,
  { url, idUser, secret }: ExportAccess,
  { signal, onWait, patienceMs = defaultPatienceMs }: ExportAreaOptions,
): ExportArea {
  const headers = {
    authorization: `Basic ${Buffer.from(`${idUser}:${secret}`).toString('base64')}`,
    'content-type': 'application/x-www-form-urlencoded',
  };

  async function send(method: string, parameters: ExportArguments): Promise<HttpAnswer> {
    const body = new URLSearchParams(parameters.map(([name, value]): [string, string] => [name, value])).toString();
    const isPost = !/\/(?:list|apps)\.json$/.test(method);
    return await http.send({
      method: isPost ? 'POST' : 'GET',
      url: `${url}${method}${isPost || body === '' ? '' : `?${body}`}`,
      headers,
      ...(isPost ? { body } : {}),
    });
  }

  /** Makes one try: the data, or why there are none now. */
  async function tryOnce(
    method: string,
    parameters: ExportArguments,
    isChange: boolean,
  ): Promise<{ readonly data: ExportData } | (Later & { readonly isQuota: boolean })> {
    let answer: HttpAnswer;
    try {
      answer = await send(method, parameters);
    } catch (error) {
      if (!isAppError(error, 'service_away')) throw error;
      if (isChange && !isSystemError(error.cause, ...unsent)) throw unknownChange(url, error.message, error.cause);
      return { why: error.message, waitMs: undefined, isQuota: false };
    }
    const [why, waitMs] = [describe(answer), retryAfterMs(answer)];
    if (answer.status === 200) {
      const { data } = parseEnvelope(answer.text);
      if (typeof data === 'object' && data !== null) return { data };
      throw new AppError('service_refused', `${url} does not answer as an export area does: ${why}`, {
        hint: 'Look whether the address is that of the export area, and what stands between.',
      });
    }
    if (answer.status === 429) return { why, waitMs, isQuota: true };
    if (answer.status < 500) throw refusal(url, answer);
    // Only the service itself says when to try again: behind a gateway's answer the change may have been made.
    if (isChange && waitMs === undefined) throw unknownChange(url, why);
    return { why, waitMs, isQuota: false };
  }

  async function call(method: string, parameters: ExportArguments, isChange = false): Promise<ExportData> {
    const backoff = createBackoff(firstWaitMs, longestWaitMs);
    const untilMs = performance.now() + patienceMs;
    for (;;) {
      const tried = await tryOnce(method, parameters, isChange);
      if ('data' in tried) {
        onWait(undefined);
        return tried.data;
      }
      const { why, waitMs, isQuota } = tried;
      // A quota of an hour is waited for, however long it takes.
      if (!isQuota && performance.now() > untilMs)
        throw new AppError('service_away', `${url} cannot do it now: ${why}`, {
          hint: 'Repeat the command when the service runs again.',
        });
      onWait(why);
      await pause(waitMs ?? backoff.currentMs(), signal);
      backoff.grow();
      if (signal.aborted) throw new AppError('stopping', 'the command was interrupted');
    }
  }

  return {
    call,
    get: async (id) => toReport(id, await call('/api/raw/v1/export/get.json', [['idRawExport', id]])),
  };
}

/**
 * The pauses between two looks: short at first, since most exports take seconds; then within the quota of an hour, which
 * has others' calls as well, milliseconds.
 */
const firstPauseMs = 300;
const longestPauseMs = 6000;
const growth = 1.15;

export interface WaitOptions {
  readonly signal: AbortSignal;
  /** Called after each look. */
  readonly onProgress: (report: ExportReport) => void;
}

/**
 * Waits until a request has ended, and returns it finished. Errors: `service_refused` when it failed or was canceled;
 * `stopping` when the signal ends the wait: the request goes on; those of the area.
 */
export async function waitForExport(area: ExportArea, id: string, options: WaitOptions): Promise<ExportReport> {
  let pauseMs = firstPauseMs;
  for (;;) {
    const report = await area.get(id);
    options.onProgress(report);
    if (report.files !== undefined) return report;
    if (!isInProgress(report))
      throw new AppError('service_refused', `export ${id} has ended: ${report.error ?? report.status}`, {
        hint: 'Order it anew, with other arguments where these were refused.',
      });
    await pause(pauseMs, options.signal);
    if (options.signal.aborted)
      throw new AppError('stopping', `export ${id} goes on without being waited for`, {
        hint: `'tributary export download ${id}' waits for it and fetches it.`,
      });
    pauseMs = Math.min(pauseMs * growth, longestPauseMs);
  }
}
