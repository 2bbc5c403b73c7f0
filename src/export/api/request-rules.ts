import type { ExportApp, ExportSpec } from '../jobs/export-spec.ts';
import type { Arguments } from './arguments.ts';
import type { ZoneDays } from './calendar.ts';
import { isRefusal, type Refusal } from './envelope.ts';
import { parseExportRequest } from './parse-request.ts';
import { refuseSegment, type ListSegmentIds } from './segment-rule.ts';
import { refuseVersions, type FindVersions } from './version-rule.ts';

export interface RequestRuleDependencies {
  readonly zoneDays: ZoneDays;
  readonly listSegmentIds: ListSegmentIds;
  readonly findVersions: FindVersions;
  readonly appsOfAccount: (idAccount: number) => readonly ExportApp[];
}

/** Reads the arguments of an export as an account may order it at a moment, Unix milliseconds; or says why not. */
export type ParseRequest = (idAccount: number, given: Arguments, nowMs: number) => Promise<ExportSpec | Refusal>;

/** Creates the rules: those of the arguments, then those of what the data folder has at that moment. */
export function createRequestRules(dependencies: RequestRuleDependencies): ParseRequest {
  const { zoneDays, listSegmentIds, findVersions, appsOfAccount } = dependencies;
  return async (idAccount, given, nowMs) => {
    const parsed = await parseExportRequest(given, nowMs, zoneDays);
    if (isRefusal(parsed)) return parsed;
    const { idSegment } = parsed;
    const unavailable =
      (await refuseVersions(parsed, findVersions, appsOfAccount(idAccount))) ??
      (idSegment === undefined ? undefined : refuseSegment(idSegment, await listSegmentIds(idAccount)));
    return unavailable ?? parsed;
  };
}
