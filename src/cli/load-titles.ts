import { dataPaths } from '../config.ts';
import { loadTitles } from '../operate/lists/load-titles.ts';
import { createClock } from '../runtime/clock.ts';
import { resolveConfig, type CommandContext } from './command.ts';
import { answerRefused, openList } from './list-input.ts';
import { refuse } from './words.ts';

/** `tributary load titles FILE...`: what ids of campaigns, partners, links and the like are called in exports. */
export async function runLoadTitles(
  files: readonly string[],
  data: string | undefined,
  context: CommandContext,
): Promise<number> {
  if (files.filter((file) => file === '-').length > 1) refuse('standard input can be read once');
  const config = resolveConfig(context.environment, { TRIBUTARY_DATA_DIR: data });
  const inputs = files.map((file) => openList(file, context));
  const loaded = await loadTitles(dataPaths(config.dataDir).titles, inputs, {
    clock: createClock(config.clockOffsetSeconds),
    memoryMb: config.duckdbMemoryMb,
    signal: context.stop,
  });
  if (!('titles' in loaded)) return answerRefused(loaded, context);
  context.answer(loaded);
  return 0;
}
