import { auditActions, auditColumns, auditOutcomes, renderAuditRow, type AuditEntry } from '../audit/audit-entry.ts';
import { readAuditDays } from '../audit/audit-log.ts';
import { defineDataCommand } from './command.ts';
import { day, toExportDay } from './export-request.ts';
import { flag, oneOf, positive, text } from './option-specs.ts';

const fallbackLimit = 100;

const options = {
  from: day('first UTC day: YYYY-MM-DD, today or yesterday (all days)'),
  to: day('last UTC day (today)'),
  action: oneOf(auditActions, 'action', 'ACTION'),
  outcome: oneOf(auditOutcomes, 'outcome'),
  user: text('user id, user name, or name of a system user', 'USER'),
  subject: text('text that the subject contains, such as "app 7"'),
  limit: positive(`maximum number of entries, newest first (${fallbackLimit}; with --from or --to all)`),
  csv: flag('print CSV with a header'),
} as const;

const matches = (value: string | undefined, wanted: string | undefined): boolean =>
  wanted === undefined || value === wanted;

export const auditCommand = defineDataCommand({
  name: 'audit',
  summary: 'list who signed in, exported, downloaded, saw rows, erased and changed access',
  isList: true,
  options,
  details: ['Entries stay for TRIBUTARY_AUDIT_DAYS days. They have no secrets and no tokens.'],
  examples: [
    'audit',
    'audit --action sign_in --outcome refused --from yesterday',
    "audit --user ann --subject 'export 12'",
    'audit --from 2026-01-01 --csv > audit.csv',
  ],
  async run(
    { from, to, action, outcome, user, subject, limit, csv },
    { paths, clock, print, printResult, printMessage },
  ) {
    const nowMs = clock.nowMs();
    const toDay = (given: string | undefined): string | undefined =>
      given === undefined ? undefined : toExportDay(given, 'UTC', nowMs);
    const most = limit ?? ((from ?? to) === undefined ? fallbackLimit : Infinity);
    const isWanted = (entry: AuditEntry): boolean =>
      matches(entry.action, action) &&
      matches(entry.outcome, outcome) &&
      (user === undefined || [entry.idUser, entry.name, entry.systemUser].includes(user)) &&
      (subject === undefined || entry.subject?.includes(subject) === true);
    if (csv) print(auditColumns.join(','));
    let [shown, damaged, hasMore] = [0, 0, false];
    for await (const found of readAuditDays(paths.audit, { from: toDay(from), to: toDay(to) })) {
      damaged += found.damaged;
      for (const entry of found.entries.filter(isWanted)) {
        hasMore = shown >= most;
        if (hasMore) break;
        if (csv) print(renderAuditRow(entry));
        else printResult(Object.fromEntries(auditColumns.map((column) => [column, entry[column]])));
        shown += 1;
      }
      if (hasMore) break;
    }
    if (hasMore) printMessage(`older entries exist: pass --limit above ${shown}, or --from`);
    if (damaged > 0) printMessage(`${damaged} lines cannot be read, such as those of a killed process`);
  },
});
