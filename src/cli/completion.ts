import { verb } from './command.ts';
import { bashScript, findPlaces, fishScript, zshScript } from './completion-scripts.ts';
import { oneOf } from './words.ts';

const scripts = { bash: bashScript, zsh: zshScript, fish: fishScript } as const;

/** `tributary completion SHELL`: a script that completes commands, options and their values, by what they declare. */
export const completionCommand = verb({
  name: 'completion',
  summary: 'print a script that completes commands, options and values in a shell',
  isWithoutData: true,
  words: { SHELL: oneOf(['bash', 'zsh', 'fish'], 'which shell') },
  details: [
    'In bash: source <(tributary completion bash), in ~/.bashrc to keep it.',
    'In zsh: source <(tributary completion zsh), behind compinit in ~/.zshrc.',
    'In fish: tributary completion fish > ~/.config/fish/completions/tributary.fish.',
  ],
  examples: ['completion bash > /etc/bash_completion.d/tributary'],
  async run({ SHELL: shell }, { loadCommands, print }) {
    print(scripts[shell](findPlaces((await loadCommands?.()) ?? [])).trimEnd());
  },
});
