import path from 'node:path';
import type { ListInput } from '../operate/lists/text-lines.ts';
import type { RefusedList } from '../operate/lists/bad-lines.ts';
import { AppError } from '../runtime/errors.ts';
import { streamFile } from '../runtime/files/text-file.ts';
import type { CommandContext } from './command.ts';

/** Opens the list that a word of the command line names: a file, or standard input for `-`. Error: `usage`. */
export function openList(word: string, { input }: Pick<CommandContext, 'input'>): ListInput {
  if (word !== '-') return { name: word, pieces: streamFile(path.resolve(word)) };
  if (input === undefined)
    throw new AppError('usage', 'there is no standard input to read', { hint: 'Name a file instead of -.' });
  return { name: 'standard input', pieces: input() };
}

/** Answers what is wrong with lists, a line each; returns the exit code of a command that has changed nothing. */
export function answerRefused(refused: readonly RefusedList[], { answer, note }: CommandContext): number {
  for (const list of refused) {
    answer(list);
    const [first] = list.first;
    note(`${list.file}: ${list.badLines} bad lines, the first is line ${first?.line}, which ${first?.reason}`);
  }
  note('nothing was changed');
  return 1;
}
