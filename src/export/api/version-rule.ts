import { refuseVersion, type KeptVersions } from '../../lake/log/kept-versions.ts';
import { parsePlace } from '../../lake/log/change-feed.ts';
import { isAppError } from '../../runtime/errors.ts';
import { selectApps, type ExportApp, type ExportSpec } from '../jobs/export-spec.ts';
import { quote } from './arguments.ts';
import { badRequest, type Refusal } from './envelope.ts';

/** Which versions the table of an event has now. */
export type FindVersions = (event: string) => Promise<KeptVersions>;

/**
 * Refuses versions that cannot be given, as far as a look at the log tells: the rest is seen when the export runs, and
 * ends it with the reason.
 */
export async function refuseVersions(
  spec: ExportSpec,
  findVersions: FindVersions,
  accountApps: readonly ExportApp[],
): Promise<Refusal | undefined> {
  const { event, asOf, sinceVersion } = spec;
  if (asOf === undefined && sinceVersion === undefined) return undefined;
  const kept = await findVersions(event).catch((error: unknown) => {
    // The export meets the damage, and waits for its repair, as any other does.
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
