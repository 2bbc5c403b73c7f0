import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { AccessReader, User } from '../../access/access.ts';
import { findCaller } from '../../access/authorization.ts';
import type { Sessions } from '../../access/sessions.ts';
import { pause } from '../../runtime/async/retry.ts';
import { addressOf } from '../../runtime/http/request-head.ts';
import { parseArguments, type Arguments } from './arguments.ts';
import { accessDenied, isRefusal, success, type Refusal } from './envelope.ts';
import { refuse, type ApiServer } from './server.ts';
import type { Throttle } from './throttle.ts';

interface MethodDependencies {
  readonly access: AccessReader;
  readonly throttle: Throttle;
  /** Who is signed in to the console; absent: nobody can be. */
  readonly sessions?: Sessions | undefined;
  /** Told every answer: method name and HTTP status. */
  readonly onAnswer: (method: string, status: number) => void;
}

interface MethodOptions {
  /** The address clients see, without a trailing slash; undefined: the one they used. */
  readonly publicUrl: string | undefined;
}

/** What an authorized call answers: data for the envelope, or a refusal. */
export type Answer = { readonly data: unknown } | Refusal;
/** An answer that is no envelope. A refusal says that the response was not touched, and is answered instead. */
interface OwnAnswer {
  readonly takeOver: (response: ServerResponse) => Promise<Refusal | undefined>;
}
/** What a method knows of its call beside user and arguments. */
export interface CallContext {
  /** The address for links, without a slash at its end. */
  readonly baseUrl: string;
  /** Says that the client has broken the connection off: no answer reaches it. */
  readonly isGone: () => boolean;
  /** Says that the session that the call came with goes on; of a call with authorization of its own there is none to end. */
  readonly isStillSignedIn: () => boolean;
  /** Does what is for the client only: the signal says that its connection has broken off meanwhile. */
  readonly whileConnected: <T>(work: (signal: AbortSignal) => Promise<T>) => Promise<T>;
}
export type Method = (
  user: User,
  given: Arguments,
  call: CallContext,
) => Promise<Answer | OwnAnswer> | Answer | OwnAnswer;

const retryAfterSeconds = 5;
/** How soon the end of a client is noticed that says nothing any more. */
const probeEveryMs = 250;

/** The value of an argument given once; undefined otherwise. */
export function single(given: Arguments, name: string): string | undefined {
  const values = given.get(name);
  return values?.length === 1 ? values[0] : undefined;
}

/** Adds a method of the API: each call is counted, authorized, and answered in the envelope. */
export type AddMethod = (methods: ('GET' | 'POST')[], url: string, name: string, method: Method) => void;

/**
 * A client that has sent its last may wait for the answer or be gone. Which of the two shows when something is sent to
 * it, and then something again: interim answers, which clients skip.
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
  const [gone, done] = [new AbortController(), new AbortController()];
  const abort = (): void => gone.abort();
  const probeOn = (): void => void probe(request, response, AbortSignal.any([gone.signal, done.signal]));
  if (socket.destroyed) abort();
  else if (socket.readableEnded) probeOn();
  socket.once('close', abort);
  socket.once('end', probeOn);
  try {
    return await work(gone.signal);
  } finally {
    done.abort();
    socket.removeListener('close', abort);
    socket.removeListener('end', probeOn);
  }
}

function contextOf(
  request: FastifyRequest,
  reply: FastifyReply,
  { publicUrl, isStillSignedIn }: MethodOptions & Pick<CallContext, 'isStillSignedIn'>,
): CallContext {
  return {
    isStillSignedIn,
    baseUrl: publicUrl ?? addressOf(request.raw),
    isGone: () => request.raw.socket.destroyed,
    whileConnected: (work) => workWhileConnected(request, reply, work),
  };
}

/** Creates what adds methods to a server. */
export function createAddMethod(
  server: ApiServer,
  { access, throttle, sessions, onAnswer }: MethodDependencies,
  options: MethodOptions,
): AddMethod {
  /** The user of a call without authorization that comes from a page of the console. */
  function findSignedIn({ headers }: FastifyRequest): User | undefined {
    return headers.authorization === undefined ? sessions?.findCaller(headers) : undefined;
  }

  async function answer(request: FastifyRequest, reply: FastifyReply, method: Method): Promise<Answer | OwnAnswer> {
    const target = request.raw.url ?? '';
    const body = Buffer.isBuffer(request.body) ? request.body : undefined;
    const { authorization, host } = request.headers;
    const overQuota = throttle.ofAddress(request.ip);
    if (overQuota !== undefined) return overQuota;
    const signedIn = findSignedIn(request);
    const user =
      signedIn ??
      findCaller({ method: request.method, target, host, body, authorization }, access.current(), options.publicUrl);
    if (user === undefined && access.mayLackUsers()) return { code: 500, retryAfterSeconds };
    if (user === undefined) return throttle.ofUnauthorized(request.ip) ?? accessDenied;
    // What a person does in the console leaves the quota to the person's programs.
    const who = signedIn === undefined ? user.idUser : `console of ${user.idUser}`;
    const overUser = signedIn === undefined ? throttle.ofUser(who) : throttle.ofConsole(who);
    if (overUser !== undefined) return overUser;
    const given = parseArguments(target, body);
    if (isRefusal(given)) return throttle.ofMistake(who) ?? given;
    const isStillSignedIn = (): boolean => signedIn === undefined || findSignedIn(request) !== undefined;
    const result = await method(user, given, contextOf(request, reply, { ...options, isStillSignedIn }));
    return isRefusal(result) ? (throttle.ofMistake(who) ?? result) : result;
  }

  return (methods, url, name, method) => {
    const handler = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
      const made = await answer(request, reply, method);
      // It has begun when this is known, and the framework then does nothing more with it.
      const result = 'takeOver' in made ? await made.takeOver(reply.raw) : made;
      onAnswer(name, result !== undefined && isRefusal(result) ? result.code : 200);
      if (result === undefined) return reply.hijack();
      reply.header('cache-control', 'no-store');
      return isRefusal(result) ? refuse(reply, result) : reply.send(success(result.data));
    };
    server.route({ method: methods, url, handler });
  };
}
