/**
 * S3Bucket sends the requests of stores to one bucket.
 *
 * The SDK is loaded when a bucket is opened, so that a service on a folder never loads it. Its retries are off: it would
 * report a conditional write whose response was lost as a conflict with itself. Each request has a time limit, and each call
 * has one over all of its requests; beyond it, it throws `store_away`.
 */
import type * as Sdk from '@aws-sdk/client-s3';
import type { LookupFunction } from 'node:net';
import type { S3 } from '@aws-sdk/client-s3';
import { withAnySignal } from '../async/in-parallel.ts';
import { createBackoff, pause } from '../async/retry.ts';
import { AppError, describeError } from '../errors.ts';
import type { PresignOptions } from './object-store.ts';

export interface S3Limits {
  /** Timeout of a connection, ms. */
  readonly connectMs: number;
  /** Timeout of a request plus that of its bytes, ms. */
  readonly requestMs: number;
  /** Time limit of all attempts of a call, plus that of its bytes, ms. */
  readonly callMs: number;
}

export interface S3Settings {
  readonly bucket: string;
  /** URL of the server; that of AWS by default. */
  readonly endpoint?: string;
  /** Whether the bucket is in the path instead of the host name. */
  readonly pathStyle?: boolean;
  readonly region?: string;
  readonly limits?: Partial<S3Limits>;
  /** Resolves the names of servers; the system's by default. */
  readonly lookup?: LookupFunction;
  /** The SDK's usual chain by default: environment, profile, web identity, container, instance. */
  readonly credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string };
  /** Ends all requests; each call then throws its reason. */
  readonly signal?: AbortSignal;
}

/** A request of the SDK that ends with its signal. It reads the whole body. */
export type S3Request<T> = (s3: S3, options: { readonly abortSignal: AbortSignal }) => Promise<T>;

/** The outcome of one attempt. `unknown`: the server may have done the work; it did not respond, or with an error. */
export type Outcome<T> =
  | { readonly kind: 'done'; readonly value: T }
  | { readonly kind: 'refused'; readonly status: number; readonly error: unknown }
  | { readonly kind: 'unknown'; readonly error: unknown };

/** The deadline and the backoff of one call. */
export interface RetryWindow {
  /** Waits before the next attempt. Error: `store_away` after the deadline. */
  readonly wait: (error: unknown) => Promise<void>;
}

interface AskOptions<A> {
  readonly refusals?: Readonly<Record<number, A>>;
  /** Length of the body or the response. */
  readonly bytes?: number;
  /** The window of the call that the request is a part of; its own by default. */
  readonly retries?: RetryWindow;
}

export interface S3Bucket {
  readonly name: string;
  /** Returns the address of an object, for people. */
  nameOf(key: string): string;
  /** Makes one attempt. `bytes` of its body or response lengthen the time limit. */
  attempt<T>(request: S3Request<T>, bytes?: number): Promise<Outcome<T>>;
  /**
   * Repeats an idempotent request until a definite response. `refusals` maps HTTP statuses to results.
   * Errors: `store_away`, `store_refused`.
   */
  ask<T, A = never>(what: string, request: S3Request<T>, options?: AskOptions<A>): Promise<T | A>;
  openRetryWindow(what: string, bytes?: number): RetryWindow;
  /** Signs a request of an object for anyone. Error: `store_refused` without credentials. */
  presign(key: string, options: PresignOptions): Promise<string>;
  close(): void;
}

const defaultLimits: S3Limits = { connectMs: 3000, requestMs: 10_000, callMs: 30_000 };
const [firstPauseMs, maxPauseMs] = [50, 2000];
/** The slowest transfer that is waited for. */
const minBytesPerMs = 256;
/** The region in signatures of servers without regions. */
const anyRegion = 'us-east-1';
const openSockets = 64;

const isPassing = (status: number, code: string): boolean =>
  (status >= 500 && status !== 501) ||
  [408, 409, 429].includes(status) ||
  ['RequestTimeout', 'RequestTimeTooSkewed'].includes(code);

function outcomeOf(error: unknown): Outcome<never> {
  const { name = '', $metadata } = error as { name?: string; $metadata?: { httpStatusCode?: number } };
  if (name === 'CredentialsProviderError') return { kind: 'refused', status: 401, error };
  const status = $metadata?.httpStatusCode ?? 0;
  if (status < 300 || isPassing(status, name)) return { kind: 'unknown', error };
  // Without the bucket, no object is known to be missing.
  return { kind: 'refused', status: name === 'NoSuchBucket' ? 400 : status, error };
}

/** Returns the error of a definite refusal. */
export function refusedError(what: string, error: unknown): AppError {
  return new AppError('store_refused', `cannot ${what}: ${describeError(error)}`, {
    cause: error,
    hint: 'Check the bucket, the credentials and their permissions.',
  });
}

/** Opens a client without retries. */
function openClient(
  sdk: Pick<typeof Sdk, 'S3'>,
  { endpoint, credentials, pathStyle, region: given, lookup }: S3Settings,
  connectMs: number,
): S3 {
  const agent = { keepAlive: true, maxSockets: openSockets, ...(lookup === undefined ? {} : { lookup }) };
  const region = given ?? (endpoint === undefined ? undefined : anyRegion);
  return new sdk.S3({
    maxAttempts: 1,
    forcePathStyle: pathStyle ?? false,
    // The signature covers the bytes of each request; data files and records have their own checksums.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: {
      connectionTimeout: connectMs,
      httpAgent: agent,
      httpsAgent: agent,
    },
    ...(endpoint === undefined ? {} : { endpoint }),
    ...(region === undefined ? {} : { region }),
    ...(credentials === undefined ? {} : { credentials }),
  });
}

/** Creates single attempts of requests. */
function createAttempt(s3: S3, { requestMs }: S3Limits, signal: AbortSignal | undefined): S3Bucket['attempt'] {
  return async <T>(request: S3Request<T>, bytes = 0): Promise<Outcome<T>> => {
    signal?.throwIfAborted();
    const timeout = new AbortController();
    const timeoutMs = requestMs + Math.ceil(bytes / minBytesPerMs);
    const timer = setTimeout(() => timeout.abort(new Error(`no response within ${timeoutMs} ms`)), timeoutMs);
    const signals = signal === undefined ? [timeout.signal] : [timeout.signal, signal];
    try {
      return { kind: 'done', value: await withAnySignal(signals, (abortSignal) => request(s3, { abortSignal })) };
    } catch (error) {
      signal?.throwIfAborted();
      return outcomeOf(timeout.signal.aborted ? timeout.signal.reason : error);
    } finally {
      clearTimeout(timer);
    }
  };
}

/** Opens a bucket without a request. Loads the SDK. */
export async function openS3Bucket(settings: S3Settings): Promise<S3Bucket> {
  const { bucket: name, endpoint, signal } = settings;
  const limits = { ...defaultLimits, ...settings.limits };
  const sdk = await import('@aws-sdk/client-s3');
  const s3 = openClient(sdk, settings, limits.connectMs);

  const attempt = createAttempt(s3, limits, signal);

  function openRetryWindow(what: string, bytes = 0): RetryWindow {
    const callMs = limits.callMs + Math.ceil(bytes / minBytesPerMs);
    const deadline = performance.now() + callMs;
    const backoff = createBackoff(firstPauseMs, maxPauseMs);
    return {
      async wait(error) {
        // Rivals that failed together do not return together.
        const pauseMs = backoff.currentMs() * (0.5 + Math.random());
        if (performance.now() + pauseMs > deadline)
          throw new AppError('store_away', `cannot ${what}: no definite response within ${callMs} ms`, {
            cause: error,
            hint: `Check the network and the server ${endpoint ?? 's3.amazonaws.com'}.`,
          });
        backoff.grow();
        await pause(pauseMs, signal);
      },
    };
  }

  async function ask<T, A = never>(
    what: string,
    request: S3Request<T>,
    { refusals = {}, bytes = 0, retries = openRetryWindow(what, bytes) }: AskOptions<A> = {},
  ): Promise<T | A> {
    for (;;) {
      const outcome = await attempt(request, bytes);
      if (outcome.kind === 'done') return outcome.value;
      if (outcome.kind === 'unknown') await retries.wait(outcome.error);
      else if (Object.hasOwn(refusals, outcome.status)) return refusals[outcome.status] as A;
      else throw refusedError(what, outcome.error);
    }
  }

  const nameOf = (key: string): string => `s3://${name}/${key}`;
  return {
    name,
    nameOf,
    attempt,
    openRetryWindow,
    ask,
    async presign(key, { seconds, fileName, contentType }) {
      // Loaded on demand: few services redirect downloads.
      const { getSignedUrl } = await import('@aws-sdk/s3-request-presigner');
      const asked = new sdk.GetObjectCommand({
        Bucket: name,
        Key: key,
        ResponseContentDisposition: `attachment; filename="${fileName}"`,
        ResponseContentType: contentType,
        ResponseCacheControl: 'private, no-store',
      });
      return await ask(`sign a link to ${nameOf(key)}`, () => getSignedUrl(s3, asked, { expiresIn: seconds }));
    },
    close: () => s3.destroy(),
  };
}
