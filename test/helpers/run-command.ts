import type { Command, CommandContext } from '../../src/cli/command.ts';
import { runProgram } from '../../src/cli/program.ts';

/** Runs a command in this process as the program does, by the words after its name; returns the exit code. */
export function runCommandHere(command: Command, words: readonly string[], context: CommandContext): Promise<number> {
  return runProgram([command], [command.name, ...words], context);
}
