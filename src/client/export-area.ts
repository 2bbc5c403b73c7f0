import { membersOf } from '../runtime/files/checksummed-json.ts';
import { createBackoff, pause } from '../runtime/async/retry.ts';
import { AppError, isAppError, isSystemError } from '../runtime/errors.ts';
import { parseObject, retryAfterMs, toLine, type HttpResponse, type HttpClient } from './http-client.ts';
import type { RetryLater } from './import-area.ts';

export interface ExportAccess {
  /** Without a slash at the end. */
  readonly url: string;
  readonly idUser: string;
  readonly secret: string;
}

/** Arguments by name; a name may be repeated. */
export type ExportArguments = readonly (readonly [name: string, value: string])[];

type ExportData = Readonly<Record<string, unknown>>;

export interface ExportFile {
  readonly name: string;
  /** A signed, expiring URL. */
  readonly link: string;
  readonly rows: number;
  readonly bytes: number;
  readonly sha256: string;
}

/** The state of an export request. */
export interface ExportReport {
  readonly id: string;
  readonly status: string;
  /** 0 to 100, while in progress. */
  readonly percent: number | undefined;
  readonly error: string | undefined;
  readonly files: readonly ExportFile[] | undefined;
  /** Whether each file begins with a header line. */
  readonly hasHeader: boolean;
  readonly manifestLink: string | undefined;
  readonly data: ExportData;
}

export interface ExportArea {
  /**
   * Calls a method; retries after quotas and temporary failures. Errors: `service_refused`; `service_away` without a
   * response: with `isChange`, the change may have been made.
   */
  call(method: string, parameters: ExportArguments, isChange?: boolean): Promise<ExportData>;
  get(id: string): Promise<ExportReport>;
}

interface ExportAreaOptions {
  readonly signal: AbortSignal;
  /** Reports why a call waits; undefined when it continues. */
  readonly onWait: (why: string | undefined) => void;
  /** Timeout for an unavailable service, ms. */
  readonly giveUpAfterMs?: number;
}

const firstWaitMs = 500;
const maxWaitMs = 10_000;
const defaultPatienceMs = 60_000;

interface Envelope {
  readonly message?: unknown;
  readonly data?:
    | (ExportData & { readonly error?: { readonly detail?: unknown; readonly info?: { readonly exports?: unknown } } })
    | null;
}

const parseEnvelope = (text: string): Envelope => parseObject(text);

function describe({ status, text }: HttpResponse): string {
  const { message, data } = parseEnvelope(text);
  const detail = data?.error?.detail;
  const what = typeof message === 'string' ? message : text.slice(0, 200).trim();
  const shown = typeof detail === 'string' ? detail : JSON.stringify(detail ?? null);
  return toLine(shown === 'null' ? `${status} ${what}` : `${what}: ${shown}`);
}

const hints: Readonly<Record<number, string>> = {
  403: "Check the user id and secret against the output of 'tributary user add'.",
  404: "Run 'tributary export list' for all export requests.",
};

/** Returns a hint that lists the exports in progress if they fill the limit; undefined for another error. */
function hintOfFull({ text }: HttpResponse): string | undefined {
  const exports = parseEnvelope(text).data?.error?.info?.exports;
  if (!Array.isArray(exports) || exports.length === 0) return undefined;
  const ids = exports.map((one: unknown) => toLine(String(membersOf(one)['idRawExport'])));
  return `Wait until one of these exports ends, or run 'tributary export cancel ID': ${ids.join(', ')}.`;
}

function refusal(url: string, answer: HttpResponse): AppError {
  return new AppError('service_refused', `${url} rejected the request: ${describe(answer)}`, {
    hint:
      hintOfFull(answer) ??
      hints[answer.status] ??
      "Check the arguments in 'tributary export EVENT --help' and docs/api.md.",
  });
}

/** Errors of a connection on which nothing was sent. */
const unsent = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'];

function unknownChange(url: string, why: string, cause?: unknown): AppError {
  return new AppError('service_away', `the outcome of the request to ${url} is unknown: ${why}`, {
    cause,
    hint: "Check 'tributary export list' before you retry: the export may exist already.",
  });
}

/** Returns the file name of a link, which can never be a path. Error: `service_refused`. */
function nameOf(link: string): string {
  const name = URL.canParse(link) ? (new URL(link).pathname.split('/').at(-1) ?? '') : '';
  if (/^\w[\w.-]*$/.test(name)) return name;
  throw new AppError('service_refused', `the service sent ${link.slice(0, 200)}, which is not a download link`);
}

function toFile(value: unknown): ExportFile {
  const { link, rows, bytes, sha256 } = membersOf(value);
  const [address, hash] = [String(link), String(sha256)];
  return { name: nameOf(address), link: address, rows: Number(rows), bytes: Number(bytes), sha256: hash };
}

function toReport(id: string, data: ExportData): ExportReport {
  const { status, progress, errorMessage, files: listed, hasHeader, manifest } = data;
  const files = Array.isArray(listed) ? listed.map(toFile) : undefined;
  const { link } = membersOf(manifest);
  return {
    id,
    status: toLine(String(status)),
    percent: typeof progress === 'string' ? Number.parseFloat(progress) : undefined,
    error: typeof errorMessage === 'string' ? toLine(errorMessage) : undefined,
    files,
    // A service of 0.3 omits it.
    hasHeader: typeof hasHeader === 'boolean' ? hasHeader : files?.[0]?.name.includes('.csv') === true,
    manifestLink: typeof link === 'string' ? link : undefined,
    data,
  };
}

/** Creates the calls of one user, with HTTP Basic. */
export function createExportArea(
  http: HttpClient,
  { url, idUser, secret }: ExportAccess,
  { signal, onWait, giveUpAfterMs = defaultPatienceMs }: ExportAreaOptions,
): ExportArea {
  const headers = {
    authorization: `Basic ${Buffer.from(`${idUser}:${secret}`).toString('base64')}`,
    'content-type': 'application/x-www-form-urlencoded',
  };

  async function send(method: string, parameters: ExportArguments): Promise<HttpResponse> {
    const body = new URLSearchParams(parameters.map(([name, value]): [string, string] => [name, value])).toString();
    const isPost = !/\/(?:list|apps)\.json$/.test(method);
    return await http.send({
      method: isPost ? 'POST' : 'GET',
      url: `${url}${method}${isPost || body === '' ? '' : `?${body}`}`,
      headers,
      ...(isPost ? { body } : {}),
    });
  }

  /** Makes one attempt: returns the data, or why to retry. */
  async function tryOnce(
    method: string,
    parameters: ExportArguments,
    isChange: boolean,
  ): Promise<{ readonly data: ExportData } | (RetryLater & { readonly isQuota: boolean })> {
    let answer: HttpResponse;
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
      throw new AppError('service_refused', `${url} is not an export area: ${why}`, {
        hint: 'Check the URL of the export area, and proxies between you and the service.',
      });
    }
    if (answer.status === 429) return { why, waitMs, isQuota: true };
    if (answer.status < 500) throw refusal(url, answer);
    // Only the service sends Retry-After: after a gateway's response the change may have been made.
    if (isChange && waitMs === undefined) throw unknownChange(url, why);
    return { why, waitMs, isQuota: false };
  }

  async function call(method: string, parameters: ExportArguments, isChange = false): Promise<ExportData> {
    const backoff = createBackoff(firstWaitMs, maxWaitMs);
    const untilMs = performance.now() + giveUpAfterMs;
    for (;;) {
      const attempt = await tryOnce(method, parameters, isChange);
      if ('data' in attempt) {
        onWait(undefined);
        return attempt.data;
      }
      const { why, waitMs, isQuota } = attempt;
      // Waits for quotas, up to an hour.
      if (!isQuota && performance.now() > untilMs)
        throw new AppError('service_away', `${url} is unavailable: ${why}`, {
          hint: 'Retry when the service is running.',
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

/** Polling interval, ms: short at first, since most exports take seconds; then within the hourly quota. */
const firstPauseMs = 300;
const maxPauseMs = 6000;
const growth = 1.15;

/**
 * Waits until a request has finished, and returns it. Errors: `service_refused` if it failed or was canceled;
 * `stopping` when aborted, while the request continues; those of the area.
 */
export async function waitForExport(
  area: ExportArea,
  id: string,
  { signal, onProgress }: { readonly signal: AbortSignal; readonly onProgress: (report: ExportReport) => void },
): Promise<ExportReport> {
  let pauseMs = firstPauseMs;
  for (;;) {
    const report = await area.get(id);
    onProgress(report);
    if (report.files !== undefined) return report;
    if (report.status !== 'In progress')
      throw new AppError('service_refused', `export ${id} failed: ${report.error ?? report.status}`, {
        hint: 'Create the export again, with other arguments if these were rejected.',
      });
    await pause(pauseMs, signal);
    if (signal.aborted)
      throw new AppError('stopping', `export ${id} continues in the background`, {
        hint: `Run 'tributary export download ${id}' to wait for it and download it.`,
      });
    pauseMs = Math.min(pauseMs * growth, maxPauseMs);
  }
}
