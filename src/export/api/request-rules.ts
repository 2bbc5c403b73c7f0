import { parsePlace, type KeptVersions, refuseVersion } from '../../lake/log/change-feed.ts';
import { isAppError } from '../../runtime/errors.ts';
import { type ExportApp, type ExportSpec, selectApps } from '../jobs/export-spec.ts';
import { type Arguments, quote } from './arguments.ts';
import type { ZoneDays } from './calendar.ts';
import { badRequest, isRefusal, type Refusal } from './envelope.ts';
import { parseExportRequest } from './parse-request.ts';

interface RequestRuleDependencies {
  readonly zoneDays: ZoneDays;
  readonly listSegmentIds: ListSegmentIds;
  readonly findVersions: FindVersions;
  readonly appsOfAccount: (idAccount: number) => readonly ExportApp[];
}

/** Parses an export as an account may create it at a time, Unix ms. */
export type ParseRequest = (idAccount: number, given: Arguments, nowMs: number) => Promise<ExportSpec | Refusal>;

/** Creates the rules: those of the arguments, then those of the present data. */
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

/** Lists the ids of an account's segments. */
type ListSegmentIds = (idAccount: number) => Promise<readonly number[]>;

const namedIds = 20;

function describeAllowed(ids: readonly number[]): string {
  if (ids.length === 0) return 'the id of an available segment, and there is none';
  const more = ids.length > namedIds ? ` and ${ids.length - namedIds} more` : '';
  return `the id of an available segment: ${ids.slice(0, namedIds).join(', ')}${more}`;
}

/** Refuses a segment that the account does not have. `ids` are those of the account, ascending. */
function refuseSegment(idSegment: string, ids: readonly number[]): Refusal | undefined {
  if (ids.some((id) => String(id) === idSegment)) return undefined;
  return badRequest(`Argument idSegment is invalid: ${quote(idSegment)}; allowed: ${describeAllowed(ids)}`);
}

/** Finds the versions of the table of an event. */
type FindVersions = (event: string) => Promise<KeptVersions>;

/** Refuses versions that are not kept by the log. Others end the export with the reason. */
async function refuseVersions(
  spec: ExportSpec,
  findVersions: FindVersions,
  accountApps: readonly ExportApp[],
): Promise<Refusal | undefined> {
  const { event, asOf, sinceVersion } = spec;
  if (asOf === undefined && sinceVersion === undefined) return undefined;
  const kept = await findVersions(event).catch((error: unknown) => {
    // The export waits for the repair of a damaged log.
    if (isAppError(error, 'log_damaged')) return undefined;
    throw error;
  });
  if (kept === undefined) return undefined;
  const upTo = asOf === undefined ? Math.max(kept.newest, 0) : (parsePlace(asOf)?.version ?? 0);
  const idApps = selectApps(spec, accountApps).map(({ idApp }) => idApp);
  const refusal = asOf === undefined ? undefined : refuseVersion(upTo, kept, idApps);
  if (refusal !== undefined) return badRequest(`Argument asOf is invalid: ${refusal}`);
  const since = parsePlace(sinceVersion ?? '0')?.version ?? 0;
  if (since > upTo)
    return badRequest(
      `Argument sinceVersion is invalid: ${quote(sinceVersion ?? '')} is later than the version that is read, ${upTo}`,
    );
  return undefined;
}
