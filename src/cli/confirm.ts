import { AppError } from '../runtime/errors.ts';
import type { CommandContext } from './command.ts';
import { flag } from './words.ts';

/** The option of a command that asks before it takes something away. */
export const yesOption = { yes: flag('do not ask on a terminal') } as const;

/**
 * Asks a person at the terminal whether to go on; a script is not asked. Error: `usage` where the answer is not yes:
 * nothing was changed.
 */
export async function assertConfirmed(
  question: string,
  { yes }: { readonly yes: boolean },
  { confirm }: Pick<CommandContext, 'confirm'>,
): Promise<void> {
  if (yes || confirm === undefined || (await confirm(question))) return;
  throw new AppError('usage', 'nothing was changed', { hint: 'Answer yes, or pass --yes.' });
}
