import { isInProgress, type ReportJob } from '../../reports/reports.ts';
import { parseExportSpec } from '../jobs/export-spec.ts';
import { quote } from './arguments.ts';
import { badRequest, isRefusal } from './envelope.ts';
import type { Exports } from './exports.ts';
import { single, type AddMethod } from './methods-routes.ts';
import { describeOrder } from './order-arguments.ts';
import type { Answers } from './views.ts';

export interface ListRouteDependencies {
  readonly exports: Exports;
  readonly answers: Answers;
}

/** Requests of one answer. */
export const listLimits = { fallback: 25, most: 200 } as const;

/** A line of the list, with what was ordered. */
function describeJob(job: ReportJob, answers: Answers): Record<string, unknown> {
  const spec = parseExportSpec(job.request);
  return {
    ...answers.summary(job),
    ...(isInProgress(job) ? { isCancellable: true } : {}),
    ...(job.finishedMs === undefined ? {} : { timestampFinished: String(Math.floor(job.finishedMs / 1000)) }),
    // Another version may have written what this one cannot read.
    ...(spec === undefined ? {} : { arguments: describeOrder(spec) }),
  };
}

/** Adds the list of the caller's requests in pieces, with what each was ordered with. */
export function addListRoutes(addMethod: AddMethod, { exports, answers }: ListRouteDependencies): void {
  addMethod(['GET'], '/api/raw/v1/export/list.json', 'raw_list', async (user, given) => {
    const unknown = [...given.keys()].find((name) => name !== 'limit' && name !== 'before');
    if (unknown !== undefined) return badRequest(`Argument ${quote(unknown)} is unknown; allowed: limit, before`);
    const limit = given.has('limit') ? (single(given, 'limit') ?? '') : String(listLimits.fallback);
    if (!/^[1-9]\d{0,3}$/.test(limit) || Number(limit) > listLimits.most)
      return badRequest(`Argument limit must be from 1 to ${listLimits.most}`);
    const before = given.has('before') ? (single(given, 'before') ?? '') : undefined;
    if (before !== undefined && !/^[1-9]\d{0,14}$/.test(before))
      return badRequest('Argument before is the idRawExport of a request');
    const page = await exports.page(user, Number(limit), before === undefined ? Infinity : Number(before));
    if (isRefusal(page)) return page;
    const { jobs, total, hasMore } = page;
    const next = hasMore ? { before: String(jobs.at(-1)?.id) } : {};
    return { data: { exports: jobs.map((job) => describeJob(job, answers)), total, ...next } };
  });
}
