import { dataPaths } from '../config.ts';
import { checkLake } from '../lake/check.ts';
import { readHistory, readLakeStats } from '../lake/history.ts';
import { lakePaths } from '../lake/lake.ts';
import { readSnapshot } from '../lake/snapshot.ts';
import { AppError } from '../runtime/errors.ts';
import { parseId, parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary lake check|log|files|stats [--limit N] [--data DIR]';

/** `tributary lake check|log|files|stats`: reads the lake, whether the service runs or not. `check` exits 1 when something is wrong. */
export const lakeCommand: Command = {
  name: 'lake',
  usage,
  summary: 'verify the lake; show its history, its live files, its rows and bytes',
  async run([verb, ...args], { environment, answer }) {
    const { values } = parseWords(args, [], { limit: { type: 'string' } }, usage);
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    const lakeDir = dataPaths(config.dataDir).lake;
    switch (verb) {
      case 'check': {
        const report = await checkLake(lakeDir);
        answer(report);
        return report.ok ? 0 : 1;
      }
      case 'log':
        for (const entry of await readHistory(lakeDir, parseId(values.limit ?? '50', '--limit'))) answer(entry);
        return 0;
      case 'files': {
        const { files } = await readSnapshot(lakePaths(lakeDir).table);
        for (const { path, sizeBytes, numRecords, young, minValues, maxValues } of files) answer({ path, sizeBytes, numRecords, young, minValues, maxValues });
        return 0;
      }
      case 'stats':
        answer(await readLakeStats(lakeDir));
        return 0;
      default:
        throw new AppError('usage', `'lake' takes check, log, files or stats, not '${verb ?? ''}'`, { hint: `Usage: ${usage}` });
    }
  },
};
