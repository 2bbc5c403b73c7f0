import { dictionaries, dictionaryNames } from '../../datasets/dictionaries.ts';
import type { Answers } from './views.ts';
import { badRequest, isRefusal, success, type Refusal } from './envelope.ts';
import type { Exports } from './exports.ts';
import { single, type AddMethod } from './methods-routes.ts';
import { refuse, type ApiServer } from './server.ts';
import type { Throttle } from './throttle.ts';

export interface ExportRouteDependencies {
  readonly exports: Exports;
  readonly answers: Answers;
  readonly throttle: Throttle;
}

const reportNotFound: Refusal = { code: 404, detail: 'File report request is not found' };
const rawNotFound: Refusal = { code: 404, detail: 'Raw export request not found' };

/** Adds the export and report methods and the dictionaries. */
export function addExportRoutes(server: ApiServer, dependencies: ExportRouteDependencies, addMethod: AddMethod): void {
  const { exports, answers, throttle } = dependencies;

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
