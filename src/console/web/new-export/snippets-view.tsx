import { useState } from 'preact/hooks';
import type { CallArguments } from '../frame/call-arguments.ts';
import { CopyButton } from '../parts/copy-button.tsx';
import type { Dictionary } from './dictionary.ts';
import { makeSnippets } from './snippets.ts';

/** The programs that order the same. */
export function SnippetsView({
  given,
  dictionary,
}: {
  readonly given: CallArguments;
  readonly dictionary: Dictionary;
}) {
  const snippets = makeSnippets(location.origin, given, dictionary.formats);
  const [name, setName] = useState(snippets[0]?.name);
  const shown = snippets.find((snippet) => snippet.name === name);
  return (
    <section class="card stack" aria-labelledby="snippets-title">
      <h2 id="snippets-title">The same from a program</h2>
      <div class="spread">
        <fieldset class="segments">
          <legend class="hidden">Program</legend>
          {snippets.map((snippet) => (
            <label key={snippet.name}>
              <input
                type="radio"
                name="snippet"
                checked={snippet.name === name}
                onChange={() => setName(snippet.name)}
              />
              <span>{snippet.name}</span>
            </label>
          ))}
        </fieldset>
        <CopyButton text={shown?.text ?? ''} />
      </div>
      <pre class="scroll code" tabIndex={0} role="region" aria-label={`${shown?.name}, to be copied`}>
        {shown?.text}
      </pre>
      <p class="muted small">
        <code>USER_ID</code> and <code>SECRET</code> are what you signed in with; keep the secret out of files that
        others read.
      </p>
    </section>
  );
}
