-- Why a run did not come to what it was to, in one line for people; error is the word of its kind.

ALTER TABLE run ADD COLUMN reason text NOT NULL DEFAULT '';
