import type { FastifyReply, FastifyRequest } from 'fastify';
import type { AccessReader, User } from '../../access/access.ts';
import { dictionaries, dictionaryNames } from '../../datasets/dictionaries.ts';
import { addressOf } from '../../runtime/http/request-head.ts';
import type { Answers } from './views.ts';
import { parseArguments, type Arguments } from './arguments.ts';
import { findCaller } from '../../access/authorization.ts';
import { accessDenied, badRequest, isRefusal, success, type Refusal } from './envelope.ts';
import type { Exports } from './exports.ts';
import { refuse, type ApiServer } from './server.ts';
import type { Throttle } from './throttle.ts';

export interface ExportRouteDependencies {
  readonly access: AccessReader;
  readonly exports: Exports;
  readonly answers: Answers;
  readonly throttle: Throttle;
  /** Told every answer: method name and HTTP status. */
  readonly onAnswer: (method: string, status: number) => void;
}

export interface ExportRouteOptions {
  /** The address clients see, without a trailing slash; undefined: the one they used. */
  readonly publicUrl: string | undefined;
}

/** What an authorized call answers: data for the envelope, or a refusal. */
type Answer = { readonly data: unknown } | Refusal;
/** What a method knows of its call beside user and arguments. */
interface CallContext {
  /** The address for links, without a slash at its end. */
  readonly baseUrl: string;
  /** Says that the client has broken the connection off: no answer reaches it. */
  readonly isGone: () => boolean;
}
type Method = (user: User, given: Arguments, call: CallContext) => Promise<Answer> | Answer;

const retryAfterSeconds = 5;
const reportNotFound: Refusal = { code: 404, detail: 'File report request is not found' };
const rawNotFound: Refusal = { code: 404, detail: 'Raw export request not found' };

/** The value of an argument given once; undefined otherwise. */
function single(given: Arguments, name: string): string | undefined {
  const values = given.get(name);
  return values?.length === 1 ? values[0] : undefined;
}

/** Adds the export and report methods and the dictionaries. */
export function addExportRoutes(
  server: ApiServer,
  dependencies: ExportRouteDependencies,
  options: ExportRouteOptions,
): void {
  const { access, exports, answers, throttle, onAnswer } = dependencies;

  async function answer(request: FastifyRequest, method: Method): Promise<Answer> {
    const target = request.raw.url ?? '';
    const body = Buffer.isBuffer(request.body) ? request.body : undefined;
    const { authorization, host } = request.headers;
    const overQuota = throttle.ofAddress(request.ip);
    if (overQuota !== undefined) return overQuota;
    const user = findCaller(
      { method: request.method, target, host, body, authorization },
      access.current(),
      options.publicUrl,
    );
    if (user === undefined && access.mayLackUsers()) return { code: 500, retryAfterSeconds };
    if (user === undefined) return throttle.ofUnauthorized(request.ip) ?? accessDenied;
    const overUser = throttle.ofUser(user.idUser);
    if (overUser !== undefined) return overUser;
    const given = parseArguments(target, body);
    const call = { baseUrl: options.publicUrl ?? addressOf(request.raw), isGone: () => request.raw.socket.destroyed };
    const result = isRefusal(given) ? given : await method(user, given, call);
    return isRefusal(result) ? (throttle.ofMistake(user.idUser) ?? result) : result;
  }

  function addMethod(methods: ('GET' | 'POST')[], url: string, name: string, method: Method): void {
    const handler = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
      const result = await answer(request, method);
      onAnswer(name, isRefusal(result) ? result.code : 200);
      reply.header('cache-control', 'no-store');
      return isRefusal(result) ? refuse(reply, result) : reply.send(success(result.data));
    };
    server.route({ method: methods, url, handler });
  }

  addMethod(['GET', 'POST'], '/api/raw/v1/export/create.json', 'create', async (user, given, { isGone }) => {
    const job = await exports.create(user, given, isGone);
    return isRefusal(job) ? job : { data: { idRawExport: String(job.id) } };
  });

  addMethod(['GET', 'POST'], '/api/raw/v1/export/get.json', 'raw_get', async (user, given, { baseUrl }) => {
    const job = await exports.find(user, single(given, 'idRawExport'));
    return job === undefined ? rawNotFound : { data: answers.raw(job, user, baseUrl) };
  });

  addMethod(['GET', 'POST'], '/api/raw/v1/export/cancel.json', 'cancel', async (user, given) => {
    const job = await exports.find(user, single(given, 'idRawExport'));
    if (job === undefined) return rawNotFound;
    if ((await exports.cancel(job)) === undefined)
      return badRequest(`Raw export request ${job.id} is already completed`);
    return { data: { idRawExport: String(job.id), info: 'Canceled' } };
  });

  addMethod(['GET', 'POST'], '/api/report/v1/file/get.json', 'report_get', async (user, given, { baseUrl }) => {
    const job = await exports.find(user, single(given, 'idReportFile'));
    return job === undefined ? reportNotFound : { data: answers.report(job, user, baseUrl) };
  });

  addMethod(['GET'], '/api/report/v1/file/list.json', 'report_list', async (user) => {
    const jobs = await exports.list(user);
    return isRefusal(jobs) ? jobs : { data: { reports: jobs.map((job) => answers.summary(job)) } };
  });

  for (const name of dictionaryNames) {
    server.get(`/api/dictionary/v1/${name}.json`, async (request, reply) => {
      const overQuota = throttle.ofAddress(request.ip);
      return overQuota === undefined
        ? reply.header('cache-control', 'public, max-age=3600').send(success(dictionaries[name]))
        : refuse(reply, overQuota);
    });
  }
}
