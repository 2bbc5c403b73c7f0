import { isExpired } from '../reports/reports.ts';
import { signingKeysPath } from '../reports/signing-keys.ts';
import type { ReportStore } from '../reports/store.ts';
import type { FileFault } from '../reports/verified-files.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/conditions/problem.ts';

/** Damaged files that are named one by one. */
const newestDamages = 10;

/** What an operator should look at: damage that an export has met, and requests that cannot be read. */
export function describeDamage(
  damages: ReadonlySet<string>,
  requests: readonly string[],
  files: readonly FileFault[],
): Problem[] {
  return [
    ...[...damages].slice(-newestDamages).map((damage) => ({
      code: 'export_met_damage' as const,
      subject: damage,
      what: `an export failed on damage: ${damage}`,
      todo: "Run 'tributary lake check', and restore what it names from a backup.",
    })),
    ...files.slice(-newestDamages).map(({ idReport, detail }) => ({
      code: 'report_file_damaged' as const,
      subject: `${idReport} ${detail}`,
      what: `a report file of export request ${idReport} cannot be downloaded: ${detail}`,
      todo: 'Restore it from a backup, or have its user create the export again.',
    })),
    ...requests.slice(0, newestDamages).map((damage) => ({
      code: 'export_request_unreadable' as const,
      subject: damage,
      what: `an export request cannot be read and is not served: ${damage}`,
      todo: 'Do what it says, then start the service again: requests are read when it starts. All others are served meanwhile.',
    })),
  ];
}

/** The notice when the keys were made anew, and a request that had links is found only later, among the older ones. */
export function describeLostKeys(store: ReportStore, keysDir: string, startedMs: number, clock: Clock): Problem[] {
  const hasLinks = store
    .list()
    .some((job) => job.state === 'success' && (job.finishedMs ?? 0) < startedMs && !isExpired(job, clock.nowMs()));
  if (!hasLinks) return [];
  return [
    {
      code: 'link_keys_renewed',
      what: `${signingKeysPath(keysDir)} was gone at the start and was made anew: links given out before are refused`,
      todo: 'Restore that file from a backup; or let the users ask for the state of their exports again, which gives new links.',
    },
  ];
}
