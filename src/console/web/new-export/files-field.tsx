import type { Dictionary } from './dictionary.ts';
import { changeDraft, type Draft } from './draft.ts';

/** Which files. */
export function FilesField({ draft, dictionary }: { readonly draft: Draft; readonly dictionary: Dictionary }) {
  const { format, compression, isByTime } = draft;
  const usual = dictionary.formats.find(({ name }) => name === format)?.usual ?? '';
  return (
    <section class="card stack" aria-labelledby="files-title">
      <h2 id="files-title">Files</h2>
      <div class="row wide-gap">
        <fieldset class="segments">
          <legend class="hidden">Format</legend>
          {dictionary.formats.map(({ name, title }) => (
            <label key={name}>
              <input
                type="radio"
                name="format"
                checked={format === name}
                onChange={() => changeDraft({ format: name })}
              />
              <span>{title}</span>
            </label>
          ))}
        </fieldset>
        <label class="field inline">
          <span>Compression</span>
          <select value={compression} onChange={(event) => changeDraft({ compression: event.currentTarget.value })}>
            <option value="">{`Usual (${usual})`}</option>
            {dictionary.compressions.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={isByTime}
            onChange={(event) => changeDraft({ isByTime: event.currentTarget.checked })}
          />
          <span>In the order of time</span>
        </label>
      </div>
    </section>
  );
}
