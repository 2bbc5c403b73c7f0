import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { completionCommand } from '../../../src/cli/completion.ts';
import { loadDeclaredCommands } from '../../helpers/declared-commands.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

const never = new AbortController().signal;
const isHere = (shell: string): boolean => spawnSync(shell, ['--version']).status === 0;
const here = new Map(['bash', 'zsh', 'fish'].map((shell) => [shell, isHere(shell)]));
const away = [...here].flatMap(([shell, is]) => (is ? [] : [shell]));
if (away.length > 0) process.stderr.write(`completion.test.ts: not run, since they are not here: ${away.join(', ')}\n`);

const folder = temporaryFolder();

/** Writes the script for a shell, as `tributary completion SHELL` prints it; returns its file. */
async function script(shell: string): Promise<string> {
  const lines: string[] = [];
  await runCommandHere(completionCommand, [shell], {
    environment: {},
    entry: '',
    answer: () => undefined,
    print: (line) => void lines.push(line),
    note: () => undefined,
    loadCommands: loadDeclaredCommands,
    stop: never,
    force: never,
  });
  const file = path.join(folder, `script.${shell}`);
  writeFileSync(file, `${lines.join('\n')}\n`);
  return file;
}

/** What stands at the end of a line, and what a shell has to offer there. */
const offers: readonly (readonly [line: string, offered: readonly string[]])[] = [
  ['tributary sta', ['start', 'status']],
  ['tributary app re', ['remove', 'restore']],
  ['tributary app add 7 --p', ['--platform', '--project']],
  ['tributary app add 7 --platform mob', ['mobile-a', 'mobile-b']],
  ['tributary user add ann --files g', ['gzip']],
  ['tributary lake files --table pay', ['payments']],
  ['tributary completion ', ['bash', 'fish', 'zsh']],
  ['tributary load title', ['titles']],
  ['tributary load payments --by', []],
  ['tributary rol', []],
  ['tributary app add 7 --title ', []],
];
const paths: typeof offers = [
  ['tributary restore a --data my', ['my folder']],
  ['tributary verify my', ['my folder', 'my.json']],
];

describe('the completion of a shell', () => {
  beforeAll(() => {
    mkdirSync(path.join(folder, 'my folder'));
    writeFileSync(path.join(folder, 'my.json'), '');
  });

  it.runIf(here.get('bash'))(
    'The completion of bash offers commands, options, their choices, files and folders',
    async () => {
      const file = await script('bash');
      const complete = (words: readonly string[]): string[] => {
        const array = words.map((word) => `'${word}'`).join(' ');
        const code = `source '${file}'; COMP_WORDS=(${array}); COMP_CWORD=${words.length - 1}; _tributary; printf '%s\\n' "\${COMPREPLY[@]}"`;
        const out = execFileSync('bash', ['-c', code], { cwd: folder, encoding: 'utf8' });
        return out
          .split('\n')
          .filter((line) => line !== '')
          .toSorted();
      };
      for (const [line, offered] of [...offers, ...paths]) expect(complete(line.split(' ')), line).toEqual(offered);
      expect(complete(['tributary', 'app', 'add', '--platform', '=', 'we'])).toEqual(['web']);
      expect(complete(['tributary', 'app', 'add', '--platform', '='])).toContain('game');
      expect(execFileSync('bash', ['-c', `source '${file}'; complete -p tributary`], { encoding: 'utf8' })).toContain(
        '-F _tributary',
      );
    },
  );

  it.runIf(here.get('fish'))('The completion of fish offers commands, options, their choices and files', async () => {
    const file = await script('fish');
    for (const [line, offered] of offers) {
      const out = execFileSync('fish', ['--no-config', '-c', `source '${file}'; complete -C '${line}'`], {
        cwd: folder,
        encoding: 'utf8',
      });
      const names = out.split('\n').flatMap((each) => (each === '' ? [] : [each.split('\t')[0] ?? '']));
      expect(names.toSorted(), line).toEqual(offered);
    }
  });

  it.runIf(here.get('zsh'))('The completion of zsh is a script that it can read', async () => {
    const read = spawnSync('zsh', ['-n', await script('zsh')], { encoding: 'utf8' });
    expect(read).toMatchObject({ status: 0, stderr: '' });
  });
});
