import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Command } from '../../src/cli/command.ts';
import { packageRoot } from '../../src/runtime/files/package-files.ts';

/** The command table of `src/main.ts`, which runs the program when imported: names and files. */
export const commandTable: readonly { readonly name: string; readonly file: string; readonly exported: string }[] = [
  ...readFileSync(path.join(packageRoot, 'src/main.ts'), 'utf8').matchAll(/^ {2}(\w+): async .*'(\S+)'\)\)\.(\w+),$/gm),
].map(([, name = '', file = '', exported = '']) => ({ name, file: path.join(packageRoot, 'src', file), exported }));

/** Loads every command of the program, in the order of its help. */
export function loadDeclaredCommands(): Promise<Command[]> {
  return Promise.all(
    commandTable.map(async ({ file, exported }) => {
      const command = ((await import(file)) as Record<string, Command>)[exported];
      if (command === undefined) throw new Error(`${file} exports no ${exported}`);
      return command;
    }),
  );
}
