import type { Command, CommandContext } from '../../src/cli/command.ts';
import { runProgram } from '../../src/cli/program.ts';

/** Runs a command in this process, by the words behind its name, as the program does; returns the exit code. */
export function runCommandHere(command: Command, words: readonly string[], context: CommandContext): Promise<number> {
  return runProgram([command], [command.name, ...words], context);
}
