import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { AccessReader, User } from '../../access/access.ts';
import { findCaller, findClaimedUser } from '../../access/authorization.ts';
import type { Sessions } from '../../access/sessions.ts';
import type { AuditLog } from '../../audit/audit-log.ts';
import { pause } from '../../runtime/async/retry.ts';
import { addressOf } from '../../runtime/http/request-head.ts';
import { parseArguments, quote, type Arguments } from './arguments.ts';
import { describeCall } from './audited-methods.ts';
import { accessDenied, badRequest, isApiError, success, unavailable, type ExportApiError } from './envelope.ts';
import { sendError, type ApiServer } from './server.ts';
import type { Quotas } from './quotas.ts';

interface MethodDependencies {
  readonly access: AccessReader;
  readonly quotas: Quotas;
  readonly sessions?: Sessions | undefined;
  /** Absent if calls are not audited. */
  readonly audit?: Pick<AuditLog, 'record'> | undefined;
  readonly onAnswer: (method: string, status: number) => void;
}

/** The result of an authorized call: data for the envelope, or a refusal. */
export type MethodResult = { readonly data: unknown } | ExportApiError;
/** A response without an envelope. A refusal means that the response was not touched, and is sent instead. */
interface OwnAnswer {
  readonly takeOver: (response: ServerResponse) => Promise<ExportApiError | undefined>;
}

export interface CallContext {
  /** Base of links, without a trailing slash. */
  readonly baseUrl: string;
  readonly isGone: () => boolean;
  readonly headers: IncomingHttpHeaders;
  /** Reports whether the session of the call is still valid; true for a call without one. */
  readonly isStillSignedIn: () => boolean;
  /** Does work for the client only; the signal aborts when the connection breaks. */
  readonly whileConnected: <T>(work: (signal: AbortSignal) => Promise<T>) => Promise<T>;
}
export type Method = (
  user: User,
  given: Arguments,
  call: CallContext,
) => Promise<MethodResult | OwnAnswer> | MethodResult | OwnAnswer;

/** Adds a method of the API: each call is counted, authorized, and its result sent in the envelope. */
export type AddMethod = (methods: ('GET' | 'POST')[], url: string, name: string, method: Method) => void;

const probeEveryMs = 250;

export function single(given: Arguments, name: string): string | undefined {
  const values = given.get(name);
  return values?.length === 1 ? values[0] : undefined;
}

export function findUnknownArgumentError(given: Arguments, known: readonly string[]): ExportApiError | undefined {
  const unknown = [...given.keys()].find((name) => !known.includes(name));
  return unknown === undefined ? undefined : badRequest(`Unknown argument ${quote(unknown)}`);
}

/** Parses an id from 1 on; undefined for other texts. */
export function parseId(text: string | undefined): number | undefined {
  return text !== undefined && /^[1-9]\d{0,14}$/.test(text) ? Number(text) : undefined;
}

/** Parses a whole number up to `most`; undefined for other texts. */
export function parseCount(given: Arguments, name: string, fallback: number, most: number): number | undefined {
  if (!given.has(name)) return fallback;
  const text = single(given, name) ?? '';
  return /^\d{1,7}$/.test(text) && Number(text) <= most ? Number(text) : undefined;
}

export function parseLimit(given: Arguments, fallback: number, most: number): number | ExportApiError {
  const limit = parseCount(given, 'limit', fallback, most);
  return limit === undefined || limit === 0 ? badRequest(`Argument limit must be from 1 to ${most}`) : limit;
}

/**
 * Probes a half-closed connection with interim responses: a second write fails if the client has closed it; otherwise
 * the client still waits.
 */
async function probe({ httpVersion }: IncomingMessage, response: ServerResponse, until: AbortSignal): Promise<void> {
  if (httpVersion === '1.0') return;
  while (!until.aborted && !response.headersSent) {
    response.writeProcessing();
    await pause(probeEveryMs, until);
  }
}

async function workWhileConnected<T>(
  { raw: request }: FastifyRequest,
  { raw: response }: FastifyReply,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { socket } = request;
  const [disconnected, done] = [new AbortController(), new AbortController()];
  const abort = (): void => disconnected.abort();
  const probeOn = (): void => void probe(request, response, AbortSignal.any([disconnected.signal, done.signal]));
  if (socket.destroyed) abort();
  else if (socket.readableEnded) probeOn();
  socket.once('close', abort);
  socket.once('end', probeOn);
  try {
    return await work(disconnected.signal);
  } finally {
    done.abort();
    socket.removeListener('close', abort);
    socket.removeListener('end', probeOn);
  }
}

interface MethodOptions {
  /** Public address; undefined: that of each request. */
  readonly publicUrl: string | undefined;
  /** Whether clients have separate addresses, which the audit log names; not behind a proxy. */
  readonly hasClientAddresses?: boolean;
}

/** Creates what adds methods to a server. */
export function createAddMethod(
  server: ApiServer,
  { access, quotas, sessions, audit, onAnswer }: MethodDependencies,
  { publicUrl, hasClientAddresses = true }: MethodOptions,
): AddMethod {
  const addressFor = ({ ip }: FastifyRequest): string | undefined => (hasClientAddresses ? ip : undefined);

  /** Refuses a call without a user, and audits it within the quota of the address. */
  async function refuse(request: FastifyRequest): Promise<ExportApiError> {
    const overQuota = quotas.ofUnauthorized(request.ip);
    if (overQuota !== undefined) return overQuota;
    const idUser = findClaimedUser(request.headers.authorization);
    if (idUser !== undefined) await audit?.record('api_call', 'refused', { idUser, address: addressFor(request) });
    return accessDenied;
  }

  /** Finds the user of a call from the console, which has no authorization. */
  function findSignedIn({ headers }: FastifyRequest): User | undefined {
    return headers.authorization === undefined ? sessions?.findCaller(headers) : undefined;
  }

  async function callMethod(
    request: FastifyRequest,
    reply: FastifyReply,
    name: string,
    method: Method,
  ): Promise<MethodResult | OwnAnswer> {
    const target = request.raw.url ?? '';
    const body = Buffer.isBuffer(request.body) ? request.body : undefined;
    const { authorization, host } = request.headers;
    const overQuota = quotas.ofAddress(request.ip);
    if (overQuota !== undefined) return overQuota;
    const signedIn = findSignedIn(request);
    const user =
      signedIn ??
      findCaller({ method: request.method, target, host, body, authorization }, access.current(), publicUrl);
    if (user === undefined && access.mayMissUsers()) return unavailable;
    if (user === undefined) return await refuse(request);
    // The console does not use up the quota of the user's programs.
    const who = signedIn === undefined ? user.idUser : `console of ${user.idUser}`;
    const overUser = signedIn === undefined ? quotas.ofUser(who) : quotas.ofConsole(who);
    if (overUser !== undefined) return overUser;
    const callArguments = parseArguments(target, body);
    if (isApiError(callArguments)) return quotas.ofMistake(who) ?? callArguments;
    const result = await method(user, callArguments, {
      isStillSignedIn: () => signedIn === undefined || findSignedIn(request) !== undefined,
      baseUrl: publicUrl ?? addressOf(request.raw),
      isGone: () => request.raw.socket.destroyed,
      headers: request.headers,
      whileConnected: (work) => workWhileConnected(request, reply, work),
    });
    if (isApiError(result)) return quotas.ofMistake(who) ?? result;
    const called = describeCall(name, user, callArguments, 'data' in result ? result.data : undefined);
    if (called !== undefined)
      await audit?.record(called.action, 'ok', { ...called.details, address: addressFor(request) });
    return result;
  }

  return (methods, url, name, method) => {
    const handler = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
      const called = await callMethod(request, reply, name, method);
      // The framework does nothing more with a response that was taken over.
      const result = 'takeOver' in called ? await called.takeOver(reply.raw) : called;
      onAnswer(name, result !== undefined && isApiError(result) ? result.code : 200);
      if (result === undefined) return reply.hijack();
      reply.header('cache-control', 'no-store');
      return isApiError(result) ? sendError(reply, result) : reply.send(success(result.data));
    };
    server.route({ method: methods, url, handler });
  };
}
