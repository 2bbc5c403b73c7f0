import { listKeepRules } from '../access/apps.ts';
import { dryRunExpire, expireAll } from '../admin/expire.ts';
import { dayOf, hasAgeLimits, type AgeRules } from '../lake/expiry/age-rules.ts';
import { AppError } from '../runtime/errors.ts';
import { assertConfirmed, defineDataCommand, yesOption } from './command.ts';
import { engineLimits, withEvents } from './lake-engine.ts';
import { flag } from './option-specs.ts';

const memory = { minMb: 256, mbPerThread: 1024 } as const;

export const expireCommand = defineDataCommand({
  opens: 'lake',
  name: 'expire',
  summary: 'remove the rows that exceed their age limits, as of the day of this machine',
  details: [
    "The limits are TRIBUTARY_KEEP_DAYS and those of 'tributary app keep'. The compactor applies them too; this command also confirms a clock that it waits for. Only a backup has removed rows.",
  ],
  options: { dryRun: flag('count the rows and files without removing them'), ...yesOption },
  examples: ['lake expire --dry-run', 'lake expire --yes'],
  async run({ dryRun, yes }, context) {
    const { config, paths, clock, stop: signal } = context;
    const readRules = async (): Promise<AgeRules> => ({
      defaultDays: config.keepDays,
      apps: await listKeepRules(paths),
    });
    const rules = await readRules();
    if (!hasAgeLimits(rules))
      throw new AppError('usage', 'no rows have an age limit', {
        hint: "Set TRIBUTARY_KEEP_DAYS, or run 'tributary app keep ID --days N'.",
      });
    const day = dayOf(clock.nowMs());
    const limits = engineLimits(config, memory.minMb, memory.mbPerThread);
    const { tables, recorded } = await withEvents(context, limits, async (events) => ({
      tables: await dryRunExpire(events, rules, day),
      recorded: events.table.lake().expiryDay,
    }));
    const rows = Object.values(tables).reduce((sum, table) => sum + table.rows, 0);
    if (dryRun) {
      context.printResult({ dryRun: true, day, rows, tables });
      return 0;
    }
    await assertConfirmed(
      `Permanently remove ${rows} rows beyond their age limits as of ${day} (recorded day: ${recorded ?? 'none'})?`,
      yes,
      context,
    );
    const removed = await withEvents(context, limits, (events) =>
      expireAll({ ...events, retentionMs: config.retentionMs, signal }, readRules, day),
    );
    context.printResult({ day, tables: removed });
    return 0;
  },
});
